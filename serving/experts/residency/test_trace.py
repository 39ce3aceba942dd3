"""Traces: made, written, read back; and every way in which a file is none."""

import json
from pathlib import Path

import numpy as np
import pytest

from serving.experts.residency import synthetic, trace
from serving.experts.residency.synthetic import Synthetic
from serving.experts.residency.trace import RoutingTrace
from tools.cli.errors import UserError

SMALL = Synthetic(steps=20, layers=3, experts=16, top_k=4, rows=2, seed=3)
ABOUT = {"schema": trace.SCHEMA, "experts": 4, "layers": [3, 5], "model": "m", "source": "s"}


@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_written_and_read_back(tmp_path: Path, suffix: str) -> None:
    made = synthetic.make(SMALL)
    uneven = RoutingTrace(made.routed[:-1], made.step[:-1] * 7, 16, (3, 4, 9), "model", "source")
    for number, one in enumerate((made, uneven)):
        trace.save(one, path := tmp_path / f"{number}{suffix}")
        found = trace.load([path])
        assert found.routed.tolist() == one.routed.tolist() and found.step.tolist() == one.step.tolist()
        assert (found.experts, found.layers, found.model, found.source) == (16, one.layers, one.model, one.source)
    assert (uneven.steps, uneven.most_rows, uneven.top_k) == (20, 2, 4)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_requests_run_side_by_side(tmp_path: Path) -> None:
    paths = []
    for name, tokens in (("a", 3), ("b", 1), ("c", 2)):
        paths.append(tmp_path / f"{name}.npy")
        np.save(paths[-1], np.full((tokens, 2, 1), "abc".index(name), np.int32))
    found = trace.load(paths, 4)
    assert found.step.tolist() == [0, 0, 0, 1, 1, 2] and found.routed[:, 0, 0].tolist() == [0, 1, 2, 0, 2, 0]
    with pytest.raises(UserError, match="give --experts"):
        trace.load(paths)
    np.save(paths[1], np.zeros((3, 3, 1), np.int32))
    with pytest.raises(UserError, match="equal but for tokens"):
        trace.load(paths, 4)
    np.save(paths[1], np.full((3, 2, 1), -1, np.int32))
    with pytest.raises(UserError, match="expected 0 to 3"):
        trace.load(paths, 4)
    np.save(paths[1], np.zeros((3, 2, 1), np.float32))
    with pytest.raises(UserError, match="expected an array of integers"):
        trace.load(paths, 4)


def lines(*steps: object, about: object = ABOUT) -> str:
    return "\n".join(json.dumps(line) for line in (about, *steps)) + "\n"


GOOD = ({"step": 0, "layer": 3, "experts": [[0, 1]]}, {"step": 0, "layer": 5, "experts": [[2, 3]]})


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "its heading"),
        ("{}\n", "its heading"),
        (lines(*GOOD, about={**ABOUT, "schema": "other"}), "schema 'other'; expected 'moet.routing-trace.v1'"),
        (lines(*GOOD, about={**ABOUT, "layers": []}), "4 experts in 0 layers"),
        (lines(*GOOD, about={**ABOUT, "layers": [5, 3]}), ":2: expected layer 5 of step 0"),
        (lines(), "ends in the midst of a step, or has none"),
        (lines(*GOOD[:1]), "ends in the midst of a step"),
        (lines(*GOOD[::-1]), ":2: expected layer 3"),
        (lines(GOOD[0], {**GOOD[1], "step": 1}), ":3: expected layer 5 of step 0"),
        (lines(GOOD[0], {**GOOD[1], "experts": [[2, 3], [0, 1]]}), ":3: expected layer 5 of step 0, as many rows"),
        (lines(GOOD[0], {**GOOD[1], "experts": [[2]]}), "rows of different shapes"),
        (lines(GOOD[0], {**GOOD[1], "experts": [[2, 2.5]]}), "expected integers"),
        (lines(GOOD[0], {**GOOD[1], "experts": [[2, -1]]}), "expected integers of 0 to 65535"),
        (lines(GOOD[0], {**GOOD[1], "experts": [[2, 4]]}), "row 0, layer 5: expert 4 of 4"),
        (lines(GOOD[0], {**GOOD[1], "experts": [[2, 2]]}), "row 0, layer 5: an expert twice"),
        (lines(*({**line, "step": 1} for line in GOOD), *GOOD), "row 1 is of step 0, after 1; sort by step"),
        (lines(GOOD[0]) + '{"step": 0, "lay', ":3: "),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, text: str, wrong: str) -> None:
    (path := tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(UserError) as error:
        trace.load([path])
    assert wrong in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_archives_that_are_no_trace(tmp_path: Path) -> None:
    trace.save(synthetic.make(SMALL), whole := tmp_path / "whole.npz")
    data = whole.read_bytes()
    bad = tmp_path / "bad.npz"
    for content in (b"", b"PK", data[: len(data) // 2], data[:-30]):
        bad.write_bytes(content)
        with pytest.raises(UserError, match=r"bad\.npz: no routing trace"):
            trace.load([bad])
    np.savez(
        bad, experts=np.zeros((1, 1, 1), np.float32), step=np.zeros(1, np.int64), about=np.array(json.dumps(ABOUT))
    )
    with pytest.raises(UserError, match="expected integers"):
        trace.load([bad])
    np.savez(bad, experts=np.zeros((1, 1, 1), np.uint16), about=np.array(json.dumps(ABOUT)))
    with pytest.raises(UserError, match="no routing trace"):
        trace.load([bad])
    for shape, wrong in (
        ((2, 2), "none of them 0"),
        ((0, 2, 1), "none of them 0"),
        ((2, 3, 1), "expected 3 ascending"),
    ):
        np.savez(
            bad,
            experts=np.zeros(shape, np.uint16),
            step=np.zeros(shape[0], np.int64),
            about=np.array(json.dumps(ABOUT)),
        )
        with pytest.raises(UserError, match=wrong):
            trace.load([bad])
    with pytest.raises(UserError, match="one trace at a time"):
        trace.load([whole, whole])
    with pytest.raises(UserError, match=r"expected a trace: \.npz"):
        trace.load([tmp_path / "x.txt"])
    with pytest.raises(FileNotFoundError):
        trace.load([tmp_path / "absent.npz"])


def test_made_up_routing_is_what_it_says() -> None:
    made = trace.checked(
        synthetic.make(Synthetic(steps=400, layers=2, experts=32, top_k=4, zipf=1.2, strength=0)), "made"
    )
    counts = -np.sort(-np.bincount(made.routed[:, 0].reshape(-1), minlength=32))
    assert counts[:4].sum() > 3 * counts[16:].sum()
    assert synthetic.make(SMALL).routed.tobytes() == synthetic.make(SMALL).routed.tobytes()
    assert (
        synthetic.make(SMALL).routed.tobytes()
        != synthetic.make(Synthetic(**{**vars(SMALL), "seed": 4})).routed.tobytes()
    )


def agreement(value: float) -> float:
    """How much the popularity of neighbouring layers' experts agrees."""
    made = synthetic.make(Synthetic(steps=400, layers=2, experts=32, top_k=4, zipf=1.2, agreement=value))
    counts = [np.bincount(made.routed[:, layer].reshape(-1), minlength=32) for layer in (0, 1)]
    return float(np.atleast_2d(np.corrcoef(np.array(counts)))[0, 1])


def test_layers_agree_and_topics_drift() -> None:
    assert agreement(1.0) > 0.9 > 0.5 > agreement(0.0)
    late = []
    for drift in (10.0, 1e6):
        made = synthetic.make(Synthetic(steps=400, layers=1, experts=32, top_k=4, zipf=0, strength=3, drift=drift))
        parts = [np.bincount(half.reshape(-1), minlength=32) for half in (made.routed[:200], made.routed[200:])]
        late.append(float(np.atleast_2d(np.corrcoef(np.array(parts)))[0, 1]))
    assert late[1] > 0.9 > late[0]


@pytest.mark.parametrize(
    "field", [{"steps": 0}, {"top_k": 17}, {"zipf": -1.0}, {"agreement": 1.5}, {"drift": 0.0}, {"zipf": float("nan")}]
)
def test_specs_that_are_none(field: dict[str, float]) -> None:
    with pytest.raises(UserError, match="expected"):
        Synthetic(**{**vars(SMALL), **field})
