"""The receipts on record are of the form that kernels/receipt.py writes, and say that all passed."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kernels import receipt
from kernels.testing import table

RECEIPTS = sorted(Path("docs/evidence/kernels").glob("*.json"))


def ran(results: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in results.items() if isinstance(part, dict) and "passed" in part}


@pytest.mark.parametrize("path", RECEIPTS, ids=[path.stem for path in RECEIPTS])
def test_on_record(path: Path) -> None:
    recorded = json.loads(path.read_text())
    assert recorded["schema"] == receipt.SCHEMA
    assert receipt.summary(recorded) == path.with_suffix(".md").read_text()
    for results in recorded["families"].values():
        assert {"tests", "memcheck", "racecheck"} <= ran(results).keys()
        for part in ran(results).values():
            assert (part["status"], part["failed"]) == (0, 0)
            assert part["passed"] > 0


def test_there_is_one() -> None:
    assert RECEIPTS


def test_what_links_several_gpus_is_said() -> None:
    recorded = json.loads(RECEIPTS[0].read_text())
    recorded["machine"] |= {"gpus": "2", "link": "NV18"}
    said = receipt.summary(recorded)
    assert "Ran on 2 such GPUs of one host, linked by NVLink (NV18 in nvidia-smi topo -m)." in said
    assert "they say nothing of another, nor NVLink's of PCIe." in said
    recorded["machine"]["link"] = "PHB"
    assert "they say nothing of another, nor PCIe's of NVLink." in receipt.summary(recorded)


@pytest.mark.parametrize(
    ("matrix", "link"),
    [
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31", "NV18"),
        ("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X ", "PHB"),
        ("unknown (FileNotFoundError)", "unknown"),
    ],
)
def test_link(matrix: str, link: str) -> None:
    assert receipt.link(matrix) == link


def test_a_failure_is_said() -> None:
    recorded = json.loads(RECEIPTS[0].read_text())
    family = next(iter(recorded["families"]))
    recorded["families"][family]["tests"] = {"status": 1, "passed": 3, "failed": 2, "skipped": 0, "failures": ["a"]}
    assert "- tests: 3 passed, 2 failed, 0 skipped, exit status 1" in receipt.summary(recorded)


def test_what_a_bench_measures_beside_is_said() -> None:
    recorded = json.loads(RECEIPTS[0].read_text())
    family = next(iter(recorded["families"]))
    rows = recorded["families"][family]["bench"]["rows"]
    recorded["families"][family]["bench"]["beside_sha256"] = {"vllm": "ab" * 32}
    said = receipt.summary(recorded)
    assert f"\nBeside: vllm, sha256 `{'ab' * 32}`\n\n{table.markdown(rows)}\n" in said


def test_a_bench_gets_its_family_s_library(tmp_path: Path) -> None:
    library = tmp_path / "x=y.so"
    library.write_bytes(b"")
    assert receipt.beside(f"p2p_allreduce:vllm={library}") == ("p2p_allreduce", ["--vllm", str(library)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm=x.so", "vllm=x.so: expected FAMILY:OPTION=LIBRARY"),
        ("p2p_allreduce:vllm", "p2p_allreduce:vllm: expected FAMILY:OPTION=LIBRARY"),
        ("p2p_allreduce:vllm=none.so", "none.so: no such file; expected a library"),
    ],
)
def test_a_library_that_no_bench_can_have(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(said)):
        receipt.beside(text)


def test_a_library_for_a_family_that_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "x.so"
    library.write_bytes(b"")
    words = ["--libraries", ".", "--commit", "c", "--output", str(tmp_path / "out"), "--beside", f"none:vllm={library}"]
    monkeypatch.setattr("sys.argv", ["receipt", *words])
    with pytest.raises(SystemExit):
        receipt.main()
    assert "argument --beside: none: expected one of " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
