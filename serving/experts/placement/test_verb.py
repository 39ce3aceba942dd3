import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.experts.placement import plan_file
from serving.experts.placement.made_up import counted, popularity
from tools.moet import main

RECIPE = """
schema = "moet.experts-recipe.v1"
name = "small"
title = "Small"
[geometry]
first_layer = 1
layers = 6
experts = 32
top_k = 4
hidden = 256
intermediate = 128
format = "mxfp4"
[published]
gpu = "RTX PRO 6000"
ranks = 2
[sources]
layers = "made up"
"""
CELL = 3 * 256 * 128 * 17 // 32
LAYERS = tuple(range(1, 7))
# Room for 40 cells.
GIB = str(40 * CELL / 2**30)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a recipe and counts of both phases."""
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(RECIPE)
    share = popularity(6, 32)
    rows = {
        phase: {
            str(layer): row
            for layer, row in zip(LAYERS, counted(share, tokens, 4, 1).phases["all"].tolist(), strict=True)
        }
        for phase, tokens in (("decode", 3000), ("prefill", 9000))
    }
    Path("counts.json").write_text(json.dumps({"train": rows}))
    steps = np.stack([counted(share, 6, 4, seed).phases["all"] for seed in range(50)]).astype(np.int32)
    np.savez("window.npz", expert_load_window=steps)


def moet(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.main(["plan", "experts", *arguments])
    return status, out.getvalue(), err.getvalue()


def planned(*arguments: str, counts: str = "counts.json") -> dict[str, Any]:
    status, out, err = moet("small.toml", "--counts", counts, "--hot-gib", GIB, *arguments, "--json")
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def refused(*arguments: str) -> str:
    status, out, err = moet(*arguments)
    assert status == 1 and out == "" and err.startswith("moet plan experts: ") and err.count("\n") == 1
    return err


def test_what_is_printed() -> None:
    status, out, err = moet("small.toml", "--counts", "counts.json", "--hot-gib", GIB, "--rest-ms", "5", "--rows", "6")
    assert status == 0 and err == ""
    for words in (
        "Small: 6 layers x 32 experts, top-4", "192 cells (mxfp4 52,224 bytes)", "GPU of rank 1",
        "RAM of node 0", "in GPU memory: 80 cells", "(optimum), gap 0.0000%", "expected hit rate: ", "95 % interval",
        "by rank; a decode step of 6 tokens", "experts of a step: ", "1600 GB/s: RTX PRO 6000", "with 5 ms for all",
    ):  # fmt: skip
        assert words in out, words


def test_document_agrees_with_the_plan_file() -> None:
    found = planned("--out", "plan.json")
    plan, evidence = plan_file.read(Path("plan.json"))
    assert found["schema"] == "moet.plan-experts-report.v1" and found["plan"] == "plan.json"
    assert {key: found[key] for key in evidence} == evidence
    assert [one["vram_bytes"] for one in found["ranks"]] == [40 * CELL] * 2 == [plan.vram(0), plan.vram(1)]
    assert sum(one["ram_bytes"] for one in found["ranks"]) == (192 - 80) * CELL
    assert found["hit_rate"]["low"] < found["hit_rate"]["share"] < found["hit_rate"]["high"]
    assert sum(found["hit_rate"]["by_location"]) == pytest.approx(1)
    assert sum(found["step"]["terms"].values()) == pytest.approx(found["step"]["seconds"])
    first = Path("plan.json").read_bytes()
    planned("--out", "again.json")
    assert Path("again.json").read_bytes() == first


def test_mixed_cells_show_a_gap_and_keep_the_bound() -> None:
    found = planned("--cells", "1-3=w2", "--cells", "6:0-3=bf16", "--format", "mxfp4")
    assert found["coverage"] <= found["bound"]["share"] <= found["coverage"] + 0.02
    assert found["gap"] == pytest.approx(found["bound"]["share"] - found["coverage"], abs=1e-8)
    assert planned("--cells", "1-6=w2")["coverage"] > planned()["coverage"]


def test_tiers_and_floors() -> None:
    ram = str(30 * CELL / 2**30)
    found = planned(
        "--ram-gib", ram, "--nvme-gib", "1", "--bank-gib", str(20 * CELL / 2**30), "--floor", "5", "--floor", "2=7"
    )
    assert [one["tier"] for one in found["locations"]] == ["gpu", "gpu", "peer", "ram", "nvme"]
    assert [one["bytes"] // CELL for one in found["locations"]] == [40, 40, 20, 30, 62]
    assert found["step"]["bytes"]["nvme"] > 0 and sum(found["step"]["bytes"]["peer"]) > 0


def test_window_of_eplb_is_judged_by_its_last_steps() -> None:
    found = planned(counts="window.npz")
    assert found["hit_rate"]["method"] == "the last 10 of 50 steps; means of 8 batches of steps"
    status, _, err = moet("small.toml", "--counts", "window.npz", "--hot-gib", GIB)
    assert status == 0 and "layers 0 to 5 are taken as the model's 1 to 6" in err


def test_held_out_file() -> None:
    found = planned("--held-out", "window.npz")
    assert found["hit_rate"]["method"].startswith("counts of window.npz; means of 8 batches")
    assert found["inputs"]["held_out_sha256"] != found["inputs"]["counts_sha256"]
    same = planned("--held-out", "counts.json")
    assert same["hit_rate"]["low"] is None and "the ones planned from" in same["hit_rate"]["method"]
    data = json.loads(Path("counts.json").read_text())
    Path("both.json").write_text(json.dumps({**data, "test": data["train"]}))
    other = planned("--held-out", "both.json", "--held-out-split", "test", counts="both.json")
    assert other["hit_rate"]["low"] is not None and "planned from" not in other["hit_rate"]["method"]


def test_explanation_and_plot() -> None:
    status, out, _ = moet("small.toml", "--counts", "counts.json", "--hot-gib", GIB, "--explain", "2:31", "--plot")
    assert status == 0 and "layer 2, expert 31: " in out and "moved by: " in out
    assert "hit rate, %" in out and "experts' time of a step, ms" in out and "\x1b" not in out
    found = planned("--explain", "2:31", "--plot")
    sweep = found["sweep"]
    assert found["explained"][0]["expert"] == 31 and sweep[0]["share"] == 0 and sweep[-1]["share"] == pytest.approx(1)
    assert [one["share"] for one in sweep] == sorted(one["share"] for one in sweep)
    assert [one["seconds"] for one in sweep] == sorted((one["seconds"] for one in sweep), reverse=True)


def test_update_of_a_plan() -> None:
    planned("--out", "plan.json")
    data = json.loads(Path("counts.json").read_text())
    row = data["train"]["decode"]["3"]
    row[row.index(min(row))] = 10 * max(row)
    Path("new.json").write_text(json.dumps(data))
    asked = ("small.toml", "--counts", "new.json", "--update", "plan.json", "--out", "plan.json")
    assert "--steps is needed" in refused(*asked)
    status, out, err = moet(*asked, "--steps", "1999")
    assert status == 0 and "0 swaps in 0 of 6 layers" in out and "1999 steps are too few" in err
    status, out, _ = moet(*asked, "--steps", "2000", "--json")
    found = json.loads(out)
    assert status == 0 and [one["layer"] for one in found["swaps"]].count(3) >= 1
    assert found["hit_rate"]["after"] > found["hit_rate"]["before"]
    plan, evidence = plan_file.read(Path("plan.json"))
    assert [one["swaps"] for one in evidence["updates"]] == [0, len(found["swaps"])]
    assert evidence["updates"][-1]["hit_rate"] == found["hit_rate"]
    assert plan.hot[2, found["swaps"][0]["brought"]]
    # The new plan is settled, or nearly so: what was swapped stays.
    status, out, _ = moet(*asked, "--steps", "2000", "--json")
    again = json.loads(out)["swaps"]
    assert not {(one["layer"], one["dropped"]) for one in again} & {
        (one["layer"], one["brought"]) for one in found["swaps"]
    }


def test_published_budget() -> None:
    share = popularity(40, 384)
    rows = counted(share, 500, 6).phases["all"].tolist()
    Path("ds.json").write_text(json.dumps({str(layer): {"counts": row} for layer, row in enumerate(rows)}))
    status, out, err = moet("deepseek-v4.1-flash", "--counts", "ds.json", "--json")
    found = json.loads(out)
    assert status == 0, err
    assert [one["budget"] for one in found["locations"][:4]] == [52 * 2**30] * 4
    assert all(0 <= 52 * 2**30 - one["bytes"] < 18_800_640 for one in found["locations"][:4])


def test_budget_that_is_not_published() -> None:
    assert "no GPU budget is published for Small; give --hot-gib" in refused("small.toml", "--counts", "counts.json")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ranks", "2", "--hot-gib", "1,2,3"), "--hot-gib: expected one number or 2, found 3"),
        (("--hot-gib", "-1"), "--hot-gib: expected a number from 0 on"),
        (("--hot-gib", "nan"), "--hot-gib: expected a number from 0 on"),
        (("--ranks", "0"), "--ranks: expected 1 to 4096"),
        (("--floor", "33"), "floor of layer 1: expected 0 to 32 experts, found 33"),
        (("--floor", "32"), "bytes of GPU memory are lacking"),
        (("--floor", "9=1"), "floor 9=1: the model's MoE layers are 1 to 6"),
        (("--floor", "many"), "floor: expected a number of experts or LAYERS=NUMBER"),
        (("--cells", "1=int3"), "'int3' is no format of cells"),
        (("--cells", "1:0-32=w2"), "cells 1:0-32=w2: a layer has experts 0 to 31"),
        (("--cells", "w2"), "cells: expected LAYERS[:EXPERTS]=FORMAT"),
        (("--format", "w3"), "'w3' is no format of cells"),
        (("--ram-gib", "0.001"), "RAM and NVMe: "),
        (("--phases", "decode=0"), "weights of phases: expected one above 0"),
        (("--phases", "decode=nan"), "weights of phases: expected a number from 0 on"),
        (("--phases", "warmup=1"), "weights of phases: expected decode=1,prefill=0.25"),
        (("--hold-out", "nan"), "share to hold out: expected 0 to 0.9"),
        (("--rest-ms", "nan"), "--rest-ms: expected a number from 0 on"),
        (("--rows", "0"), "rows of a step: expected 1 to 65536"),
        (("--explain", "1"), "expected LAYER:EXPERT"),
        (("--explain", "0:1"), "layer 0: the model's MoE layers are 1 to 6"),
        (("--bandwidth", "usb=1"), "'usb' is no bandwidth"),
        (("--bandwidth", "ram"), "--bandwidth ram: expected a number"),
        (("--split", "test"), "found the keys 'train'"),
        (("--seed", "-1"), "--seed: expected a number from 0 on"),
        (("--steps", "2000"), "--steps: is for --update alone; leave it out"),
        (("--margin", "1.3"), "--margin: is for --update alone"),
        (("--held-out-split", "test"), "--held-out-split: has no effect without --held-out"),
        (("--held-out", "window.npz", "--hold-out", "0.3"), "--hold-out: has no effect with --held-out"),
        (("--update", "plan.json"), "--hot-gib: has no effect with --update, which keeps to the plan; leave it out"),
        (("--counts", "missing.json"), "missing.json: No such file"),
        (("--out", "counts.json/plan.json"), "counts.json"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], words: str) -> None:
    asked = ["small.toml", "--counts", "counts.json", "--hot-gib", GIB, "--out", "plan.json", *arguments]
    assert words in refused(*asked)
    assert not Path("plan.json").exists() and not list(Path().glob(".plan*"))


@pytest.mark.parametrize("value", ["NaN", "-1", "1e400", "9223372036854775808"])
def test_bad_count_is_named_and_nothing_is_written(value: str) -> None:
    text = Path("counts.json").read_text()
    data = json.loads(text)
    mark = 123456789
    data["train"]["prefill"]["4"][17] = mark
    Path("counts.json").write_text(json.dumps(data).replace(str(mark), value))
    words = refused("small.toml", "--counts", "counts.json", "--hot-gib", GIB, "--out", "plan.json")
    assert "phase prefill" in words and "layer 4, expert 17" in words and not Path("plan.json").exists()


def test_layer_that_is_missing() -> None:
    data = json.loads(Path("counts.json").read_text())
    for phase in ("decode", "prefill"):
        del data["train"][phase]["5"]
    Path("counts.json").write_text(json.dumps(data))
    assert "lacks layers 5; the model has 6" in refused("small.toml", "--counts", "counts.json", "--hot-gib", GIB)


def test_plan_of_another_model() -> None:
    planned("--out", "plan.json")
    Path("other.toml").write_text(RECIPE.replace('"small"', '"other"'))
    words = refused("other.toml", "--counts", "counts.json", "--update", "plan.json", "--steps", "2000")
    assert "is a plan of small, not of other" in words


@pytest.mark.parametrize(
    "idle",
    [("--ranks", "2"), ("--explain", "1:2"), ("--plot",), ("--rows", "2"), ("--cells", "1=w2"), ("--cold", "cpu"),
     ("--held-out", "window.npz"), ("--hold-out", "0"), ("--floor", "1"), ("--seed", "1"), ("--bandwidth", "ram=9")],
)  # fmt: skip
def test_update_refuses_what_it_would_not_heed(idle: tuple[str, ...]) -> None:
    planned("--out", "plan.json")
    asked = ("small.toml", "--counts", "counts.json", "--update", "plan.json", "--steps", "2000")
    assert f"{idle[0]}: has no effect with --update" in refused(*asked, *idle)
    assert moet(*asked)[0] == 0


def test_update_of_what_is_no_plan() -> None:
    words = refused("small.toml", "--counts", "counts.json", "--update", "counts.json", "--steps", "2000")
    assert "schema: expected 'moet.plan-experts.v1'" in words


def test_pipes_are_not_waited_for() -> None:
    os.mkfifo("pipe.json")
    for asked in (("--counts", "pipe.json"), ("--counts", "counts.json", "--held-out", "pipe.json")):
        assert "pipe.json: expected a regular file" in refused("small.toml", *asked, "--hot-gib", GIB)


def test_full_disk_leaves_the_old_plan() -> None:
    planned("--out", "plan.json")
    before = Path("plan.json").read_bytes()
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
        "from tools.moet.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    given = ["plan", "experts", "small.toml", "--counts", "counts.json", "--hot-gib", "0.001", "--out", "plan.json"]
    found = subprocess.run(
        [sys.executable, "-c", program, *given],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert found.returncode == 1 and "File too large" in found.stderr, found.stderr
    assert Path("plan.json").read_bytes() == before and not list(Path().glob(".plan*"))
