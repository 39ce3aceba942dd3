import json
from pathlib import Path

import pytest

from kernels.gate import accept


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    (tmp_path / "gate.json").write_text(json.dumps({"kernels": {"k": {"registers": 40, "violations": []}}}))
    return tmp_path


def run(tree: Path, monkeypatch: pytest.MonkeyPatch, kernel: dict[str, object], *more: str) -> int:
    report = tree / "report.json"
    report.write_text(json.dumps({"kernels": {"k": kernel}}))
    monkeypatch.setattr("sys.argv", ["gate", "--report", str(report), "--record", "gate.json", *more])
    return accept.main()


def recorded(tree: Path) -> object:
    return json.loads((tree / "gate.json").read_text())["kernels"]["k"].get("registers")


def test_shows_and_leaves_the_record(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree, monkeypatch, {"registers": 48, "violations": []}) == 1
    assert "kernels: k: registers: 40 on record, 48 now" in capsys.readouterr().out
    assert recorded(tree) == 40


def test_accepts(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tree, monkeypatch, {"registers": 48, "violations": []}, "--accept") == 0
    assert recorded(tree) == 48
    assert run(tree, monkeypatch, {"registers": 48, "violations": []}) == 0


def test_does_not_accept_what_breaks_a_rule(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree, monkeypatch, {"registers": 48, "violations": ["8 bytes of stack"]}, "--accept") == 1
    assert "k: 8 bytes of stack" in capsys.readouterr().err
    assert recorded(tree) == 40
