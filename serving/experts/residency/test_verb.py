"""`moet experts simulate` as a person runs it."""

import csv
import io
import json
import os
import resource
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tools.moet import main

SMALL = ("--steps=120", "--layers=3", "--experts=16", "--top-k=2")


def moet(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main.main(["experts", "simulate", *arguments])
    return status, out.getvalue(), err.getvalue()


def document(*arguments: str) -> dict[str, Any]:
    status, out, err = moet(*arguments, "--json")
    assert status == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_table_and_plots() -> None:
    status, out, _ = moet(*SMALL)
    assert status == 0
    for text in (
        "120 steps of up to 1 rows, 3 layers x 16 experts (48 cells), top 2",
        "hit rate (%)",
        "zero-miss steps (%)",
    ):
        assert text in out
    assert out.count("belady") == 8 + 2 and "\x1b" not in out
    assert moet(*SMALL) == (0, out, "")
    assert "hit rate (%)" not in moet(*SMALL, "--no-plots")[1]


def test_optimum_is_one() -> None:
    found = document(*SMALL, "--steps=400", "--warm=0.3")
    assert found["schema"] == "moet.experts-simulate.v1" and len(found["results"]) == 40
    assert found["setting"]["warm_steps"] == 120
    for pool in range(0, 40, 5):
        five = found["results"][pool : pool + 5]
        assert [one["policy"] for one in five] == ["lru", "lfu", "lfu-aged", "ours", "belady"]
        assert all(one["hit_rate"] <= five[-1]["hit_rate"] for one in five)
    assert found["results"][-1]["hit_rate"] == found["results"][-1]["zero_miss"] == 1.0
    rates = [one["hit_rate"] for one in found["results"] if one["policy"] == "belady"]
    assert rates == sorted(rates)


def test_what_a_step_costs() -> None:
    (found,) = document(*SMALL, "--policy=ours", "--pool=25%", "--hidden=4096", "--intermediate=2048")["results"]
    wait = found["misses"] * (7_077_888 / 50e9 + 10e-6)
    assert found["step_seconds"] == pytest.approx([0.01 * (1 + replays) + wait for replays in found["replays"]])
    assert found["bytes_a_step"] == pytest.approx(found["misses"] * 7_077_888)
    assert 0 < found["replays"][0] <= 1 <= found["replays"][1] <= 3


def test_saved_trace_gives_the_same(tmp_path: Path) -> None:
    made = document(*SMALL, "--save-trace", str(tmp_path / "t.npz"))
    again = document(str(tmp_path / "t.npz"), "--save-trace", str(tmp_path / "t.jsonl"))
    third = document(str(tmp_path / "t.jsonl"))
    for found in (made, again, third):
        for one in found["results"]:
            del one["steps_a_second"]
    assert made == again == third


def test_recorded_requests(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.argsort(rng.random((50, 2, 8)), axis=2)[:, :, :3].astype(np.int16))
    found = document(str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), "--experts=8", "--pool=6")
    assert found["trace"]["steps"] == 50 and found["trace"]["most_rows"] == 2 and found["trace"]["rows"] == 100


def test_files_for_others(tmp_path: Path) -> None:
    status, _, _ = moet(*SMALL, "--csv", str(tmp_path / "o.csv"), "--svg", str(tmp_path / "o.svg"))
    rows = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    assert status == 0 and len(rows) == 40 and 0 < float(rows[0]["hit_rate"]) < 1
    drawn = ElementTree.fromstring((tmp_path / "o.svg").read_text())
    assert len(drawn.findall("{*}polyline")) == 10
    before = (tmp_path / "o.svg").read_bytes()
    moet(*SMALL, "--svg", str(tmp_path / "o.svg"))
    assert (tmp_path / "o.svg").read_bytes() == before


def test_sizes_of_pools(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text('{"quotas": [16, 4, 2]}')
    asked = ("--pool=25%", "--pool=5", "--pool=0.05GiB", "--quotas", str(tmp_path / "q.json"), "--policy=lru")
    found = [one["quotas"] for one in document(*SMALL, *asked)["results"]]
    assert found == [[3, 2, 2], [4, 4, 4], [5, 5, 5], [16, 4, 2]]
    for quotas, place in (([16, 4, 4], 1), ([4, 4, 16], 0)):
        (tmp_path / "q.json").write_text(json.dumps(quotas))
        found = document(*SMALL, "--pool=8", "--quotas", str(tmp_path / "q.json"), "--policy=lru")["results"]
        assert [one["quotas"] for one in found].index(quotas) == place, "of equal size: in the order of quotas"
    assert document(*SMALL, "--shared", "--pool=25%", "--policy=lru")["results"][0]["quotas"] == [12]


def test_pool_below_its_floor() -> None:
    status, out, err = moet(*SMALL, "--rows=4", "--pool=7")
    assert (status, out) == (1, "")
    assert "7 slots for layer 0: the floor for 4 rows x top 2 is 8" in err and "force it" in err
    forced = document(*SMALL, "--rows=4", "--pool=3", "--force-pool", "--policy=ours")["results"][0]
    assert forced["below_floor"] and forced["parts"] > 0
    assert "nothing smaller can work" in moet(*SMALL, "--pool=1", "--force-pool")[2]
    assert "3*" in moet(*SMALL, "--rows=4", "--pool=1", "--shared", "--force-pool", "--top-k=1")[1]


def test_delta_slots() -> None:
    found = document(*SMALL, "--steps=3000", "--mode=promote", "--rules=w2", "--pool=25%", "--step-ms=20")
    assert found["setting"]["kind"] == "quintal" and found["setting"]["bytes_a_slot"] == 7_864_320
    best = found["results"][-1]
    assert best["policy"] == "bound" and best["zero_miss"] is None
    assert all(one["hit_rate"] <= best["hit_rate"] for one in found["results"])
    out = moet(*SMALL, "--mode=promote", "--pool=1", "--no-plots")[1]
    assert "no policy hits more" in out and "replays" not in out


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--pool=0",), "pool '0': expected a share"),
        (("--pool=x%",), "pool 'x%': expected a share"),
        (("--pool=nan",), "pool 'nan': expected a share"),
        (("--pool=101%",), "more than 16 experts a layer"),
        (("--hidden=100",), "multiples of 64"),
        (("--tick-s=0",), "--tick-s 0.0: expected seconds above 0"),
        (("--pcie-gbs=-1",), "expected above 0"),
        (("--steps=0",), "steps 0: expected at least 1"),
        (("t.npz",), "--steps: is of a trace that is made up; leave out t.npz"),
    ],
)
def test_arguments_that_are_wrong(arguments: tuple[str, ...], wrong: str) -> None:
    status, out, err = moet(*SMALL, *arguments)
    assert (status, out) == (1, "") and wrong in err and len(err.splitlines()) == 1


def test_files_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text("[1, 2.5, 3]")
    assert "expected a list of whole numbers" in moet(*SMALL, "--quotas", str(tmp_path / "q.json"))[2]
    (tmp_path / "q.json").write_text("[" * 100_000)
    assert "no quotas: lists in lists without end" in moet(*SMALL, "--quotas", str(tmp_path / "q.json"))[2]
    (tmp_path / "q.json").write_text("[1, 2]")
    assert "2 quotas; expected one for each of 3 layers" in moet(*SMALL, "--quotas", str(tmp_path / "q.json"))[2]
    assert "No such file" in moet(str(tmp_path / "t.npz"))[2]
    (tmp_path / "t.jsonl").write_bytes(b"\xff")
    status, _, err = moet(str(tmp_path / "t.jsonl"))
    assert status == 1 and len(err.splitlines()) == 1 and "t.jsonl: no routing trace" in err
    (tmp_path / "t.npz").write_bytes(b"x")
    status, out, _ = moet(str(tmp_path / "t.npz"), "--json")
    assert status == 1 and json.loads(out)["schema"] == "moet.error.v1"
    assert "says how many a layer has" in moet(str(tmp_path / "t.npz"), "--experts=8")[2]


def test_disk_that_is_full(tmp_path: Path) -> None:
    """The old file stays, and no draft."""
    (tmp_path / "o.csv").write_text("old")

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    command = [sys.executable, "-m", "tools.moet.main", "experts", "simulate", *SMALL, "--csv", str(tmp_path / "o.csv")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=small_files, env=environment, check=False)
    assert done.returncode == 1 and "File too large" in done.stderr and "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["o.csv"] and (tmp_path / "o.csv").read_text() == "old"
