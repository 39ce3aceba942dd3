"""Files of traces: written, read back; and every way in which a file is none, each in one line."""

import json
import random
import struct
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from serving.experts.residency import synthetic, trace_files
from serving.experts.residency.synthetic import Synthetic
from serving.experts.residency.trace import RoutingTrace
from tools.cli.errors import UserError

SMALL = Synthetic(steps=20, layers=3, experts=16, top_k=4, rows=2, seed=3)
ABOUT = {"schema": trace_files.SCHEMA, "experts": 4, "layers": [3, 5], "model": "m", "source": "s"}


@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_written_and_read_back(tmp_path: Path, suffix: str) -> None:
    made = synthetic.make(SMALL)
    uneven = RoutingTrace(made.routed[:-1], made.step[:-1] * 7, 16, (3, 4, 9), "model", "source")
    for number, one in enumerate((made, uneven)):
        trace_files.save(one, path := tmp_path / f"{number}{suffix}")
        found = trace_files.load([path])
        assert found.routed.tolist() == one.routed.tolist() and found.step.tolist() == one.step.tolist()
        assert (found.experts, found.layers, found.model, found.source) == (16, one.layers, one.model, one.source)
    assert (uneven.steps, uneven.most_rows, uneven.top_k) == (20, 2, 4)
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_requests_run_side_by_side(tmp_path: Path) -> None:
    paths = []
    for name, tokens in (("a", 3), ("b", 1), ("c", 2)):
        paths.append(tmp_path / f"{name}.npy")
        np.save(paths[-1], np.full((tokens, 2, 1), "abc".index(name), np.int32))
    found = trace_files.load(paths, 4)
    assert found.step.tolist() == [0, 0, 0, 1, 1, 2] and found.routed[:, 0, 0].tolist() == [0, 1, 2, 0, 2, 0]
    with pytest.raises(UserError, match="give --experts"):
        trace_files.load(paths)
    np.save(paths[1], np.zeros((3, 3, 1), np.int32))
    with pytest.raises(UserError, match="equal but for tokens"):
        trace_files.load(paths, 4)
    np.save(paths[1], np.full((3, 2, 1), -1, np.int32))
    with pytest.raises(UserError, match="expected 0 to 3"):
        trace_files.load(paths, 4)
    np.save(paths[1], np.zeros((3, 2, 1), np.float32))
    with pytest.raises(UserError, match="expected an array of integers"):
        trace_files.load(paths, 4)


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
        trace_files.load([path])
    assert wrong in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_archives_that_are_no_trace(tmp_path: Path) -> None:
    trace_files.save(synthetic.make(SMALL), whole := tmp_path / "whole.npz")
    data = whole.read_bytes()
    bad = tmp_path / "bad.npz"
    for content in (b"", b"PK", data[: len(data) // 2], data[:-30]):
        bad.write_bytes(content)
        with pytest.raises(UserError, match=r"bad\.npz: no routing trace"):
            trace_files.load([bad])
    np.savez(
        bad, experts=np.zeros((1, 1, 1), np.float32), step=np.zeros(1, np.int64), about=np.array(json.dumps(ABOUT))
    )
    with pytest.raises(UserError, match="expected integers"):
        trace_files.load([bad])
    np.savez(bad, experts=np.zeros((1, 1, 1), np.uint16), about=np.array(json.dumps(ABOUT)))
    with pytest.raises(UserError, match="no routing trace"):
        trace_files.load([bad])
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
            trace_files.load([bad])
    with pytest.raises(UserError, match="one trace at a time"):
        trace_files.load([whole, whole])
    with pytest.raises(UserError, match=r"expected a trace: \.npz"):
        trace_files.load([tmp_path / "x.txt"])
    with pytest.raises(FileNotFoundError):
        trace_files.load([tmp_path / "absent.npz"])


def refusal(path: Path, experts: int | None = None) -> str:
    """What load says of a file; it must be one line that names the file, and no other kind of error."""
    with pytest.raises(UserError) as error:
        trace_files.load([path], experts)
    said = str(error.value)
    assert str(path) in said and len(said) < 600 and said.splitlines() == [said]
    return said


@pytest.mark.parametrize("suffix", [".npz", ".jsonl", ".npy"])
def test_bytes_by_chance(tmp_path: Path, suffix: str) -> None:
    """A file with bytes changed or lost is refused in a line, or is a trace still."""
    made = synthetic.make(SMALL)
    path = tmp_path / f"t{suffix}"
    if suffix == ".npy":
        np.save(path, made.routed)
    else:
        trace_files.save(made, path)
    data, rng, refused = path.read_bytes(), random.Random(7), 0
    # Most of an .npy are numbers that may be any; its heading is what can be wrong.
    end = 128 if suffix == ".npy" else len(data)
    for _ in range(400):
        bad = bytearray(data)
        for _ in range(rng.choice((1, 2, 5))):
            at = rng.randrange(end)
            bad[at] = rng.choice((bad[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0xFF))
        path.write_bytes(bytes(bad[: rng.randrange(len(bad))] if rng.random() < 0.2 else bad))
        try:
            trace_files.load([path], 16 if suffix == ".npy" else None)
        except UserError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("[" * 100_000, ":2: "),
        ('{"step": 1e400, "layer": 3, "experts": [[0, 1]]}', ":2: expected step and layer, whole numbers"),
        ('{"step": NaN, "layer": 3, "experts": [[0, 1]]}', ":2: expected step and layer, whole numbers"),
        ('{"step": 0.7, "layer": 3, "experts": [[0, 1]]}', ":2: expected step and layer, whole numbers"),
        ('{"step": "0", "layer": 3, "experts": [[0, 1]]}', ":2: expected step and layer, whole numbers"),
        ('{"step": true, "layer": 3, "experts": [[0, 1]]}', ":2: expected step and layer, whole numbers"),
        ('{"step": -1, "layer": 3, "experts": [[0, 1]]}', ":2: step: expected 0 to 2**62"),
        ('{"step": 1' + "0" * 30 + ', "layer": 3, "experts": [[0, 1]]}', ":2: step: expected 0 to 2**62"),
        ('{"step": 0, "layer": 3, "experts": {"0": 1}}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": "ab"}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": null}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": [[NaN, 1]]}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": [[true, false]]}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": [[[0, 1]]]}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": []}', ":2: experts: expected integers"),
        ('{"step": 0, "layer": 3, "experts": [[0, 1], [2]]}', ":2: rows of different shapes"),
        ("5", ":2: expected step and layer"),
        ("\udcff", ":2: 'utf-8' codec can't decode"),
        ('{"step": ' + "9" * 5000 + "}", ":2: Exceeds the limit"),
    ],
)
def test_lines_that_are_none(tmp_path: Path, line: str, wrong: str) -> None:
    (path := tmp_path / "t.jsonl").write_text(json.dumps(ABOUT) + "\n" + line + "\n", errors="surrogateescape")
    assert wrong in refusal(path)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"experts": 4.9}, "expected experts, a whole number"),
        ({"experts": float("inf")}, "expected experts, a whole number"),
        ({"experts": "4"}, "expected experts, a whole number"),
        ({"experts": 0}, "0 experts in 2 layers"),
        ({"experts": 65537}, "65,537 experts in 2 layers"),
        ({"layers": [3.5, 5]}, "layers, a list of them"),
        ({"layers": "35"}, "layers, a list of them"),
        ({"layers": [-3, 5]}, "none below 0"),
        ({"schema": "x" * 10_000}, "expected 'moet.routing-trace.v1'"),
        ({"model": 5}, "expected text on one line"),
        ({"source": "a\nb"}, "expected text on one line"),
        ({"source": "\x1b[31m"}, "expected text on one line"),
    ],
)
@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_headings_that_are_none(tmp_path: Path, changes: dict[str, object], wrong: str, suffix: str) -> None:
    about = json.dumps(ABOUT | changes)
    path = tmp_path / f"t{suffix}"
    if suffix == ".npz":
        np.savez(path, experts=np.zeros((1, 2, 1), np.uint16), step=np.zeros(1, np.int64), about=np.array(about))
    else:
        path.write_text("\n".join([about, *map(json.dumps, GOOD)]) + "\n")
    assert wrong in refusal(path)


def array_bytes(shape: str, dtype: str = "<u2", data: bytes = b"\0" * 64) -> bytes:
    """An array in numpy's format, with a heading that promises what it likes."""
    heading = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(heading)) + heading + data


@pytest.mark.parametrize(
    ("array", "wrong"),
    [
        (array_bytes("(1000000000000, 2, 1)"), "expected at most"),
        (array_bytes("(4000000000, 2, 1)"), "expected at most"),
        (array_bytes("(99999999999999999999999, 2, 1)"), "expected at most"),
        (array_bytes("(-5, 2, 1)"), "expected at most"),
        (array_bytes("(1, 1, 1)", "|V2147483647"), "expected at most"),
        (array_bytes("(1,)", "|O"), "no objects"),
        (array_bytes("(64, 2, 1)"), "expected 256 bytes of data"),
        (array_bytes("(1, 2, 1)"), "expected 4 bytes of data"),
        (b"\x93NUMPY\x03" + array_bytes("(32, 1, 1)")[7:], "version (3, 0)"),
        (b"PK\x03\x04", "magic string"),
    ],
)
def test_arrays_that_promise_too_much(tmp_path: Path, array: bytes, wrong: str) -> None:
    (bare := tmp_path / "t.npy").write_bytes(array)
    assert wrong in refusal(bare, 16)
    (about := BytesIO(), step := BytesIO())
    np.save(about, np.array(json.dumps(ABOUT)))
    np.save(step, np.zeros(1, np.int64))
    with zipfile.ZipFile(archive := tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED) as parts:
        for name, data in (("about", about.getvalue()), ("experts", array), ("step", step.getvalue())):
            parts.writestr(f"{name}.npy", data)
    assert wrong in refusal(archive)


def test_numbers_of_any_kind(tmp_path: Path) -> None:
    """Other integers and orders are read; steps that are no numbers of steps are not."""
    routed = np.array([[[0, 1], [2, 3]], [[1, 0], [3, 2]]])
    for kind in (routed.astype(">i8"), np.asfortranarray(routed.astype("<u4")), routed.astype(np.int8)):
        np.savez(path := tmp_path / "t.npz", experts=kind, step=np.array([4, 9], ">u4"),
                 about=np.array(json.dumps(ABOUT)))  # fmt: skip
        found = trace_files.load([path])
        assert found.routed.tolist() == routed.tolist() and found.step.tolist() == [4, 9]
        np.save(bare := tmp_path / "t.npy", kind)
        assert trace_files.load([bare], 4).routed.tolist() == routed.tolist()
    for step in (np.array([0, 1 << 63], np.uint64), np.array([-(1 << 63), (1 << 63) - 1])):
        np.savez(path, experts=routed, step=step, about=np.array(json.dumps(ABOUT)))
        assert "expected 0 to 2**62" in refusal(path)
    np.savez(path, experts=np.full((2, 2, 2), (1 << 64) - 1, np.uint64), step=step, about=np.array(json.dumps(ABOUT)))
    assert "experts of 0 to 65535" in refusal(path)
    np.savez(path, experts=routed, step=np.zeros((2, 2), int), about=np.array(json.dumps(ABOUT)))
    assert "expected one for each row" in refusal(path)


def test_traces_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = synthetic.make(SMALL)
    for name in ("t.npz", "t.jsonl"):
        trace_files.save(made, tmp_path / name)
    np.save(tmp_path / "t.npy", made.routed)
    for module in ("trace", "trace_files"):
        monkeypatch.setattr(f"serving.experts.residency.{module}.MOST_ROUTED", made.routed.size - 1)
    assert "480 routed experts; at most 479 can be simulated" in refusal(tmp_path / "t.npz")
    assert "480 routed experts; at most 479" in refusal(tmp_path / "t.npy", 16)
    assert "t.jsonl:61: more than 479 routed experts" in refusal(tmp_path / "t.jsonl")
    monkeypatch.setattr(trace_files, "_LONGEST_LINE", 100)
    assert "a line of more than 100 bytes" in refusal(tmp_path / "t.jsonl")
