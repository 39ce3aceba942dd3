import json
import os
from pathlib import Path
from typing import Any

import pytest

from serving.preflight.made_up import IMAGE, card, checkpoint, free_port, host, smi
from tools.moet import main as program

Run = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree with no release, no engine, and an environment without knobs."""
    tree = tmp_path / "tree"
    (tree / "images").mkdir(parents=True)
    (tree / "bazelw").touch()
    (tree / "CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    for name in ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tree)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def run(model: Path, *words: str, status: int) -> None:
    given = ["serve", "preflight", "dsv41", "--set", f"IMAGE={IMAGE}", "--set", f"MODEL_DIR={model}", *words]
    assert program.main(given) == status


def test_this_machine_as_it_is(tmp_path: Path, capsys: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    run(checkpoint(tmp_path / "model"), "--json", status=1)
    captured = capsys.readouterr()
    document: dict[str, Any] = json.loads(captured.out)
    states = {one["check"]: one["state"] for one in document["checks"]}
    assert document["schema"] == "moet.serve-preflight.v1"
    assert (states["model"], states["shards"], states["engine"]) == ("ok", "ok", "finding")
    skips = ["driver", "GPUs", "GPU memory", "all-reduce", "image", "container", "CACHE_DIR"]
    assert [states[name] for name in skips] == ["skipped"] * len(skips)
    assert all(one["what"] and bool(one["mend"]) == (one["state"] in ("finding", "hint")) for one in document["checks"])
    assert document["findings"] == sum(one["state"] == "finding" for one in document["checks"])
    assert captured.err.count("\n") == 1 and captured.err.startswith(f"{list(states.values()).count('ok')} ok, ")


def test_made_up_host(tmp_path: Path, capsys: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model, cache = checkpoint(tmp_path / "model"), tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    made, given = host(tmp_path), ["--set", f"CACHE_DIR={cache}", "--set", f"PORT={free_port()}"]
    monkeypatch.setattr("tools.moet.verbs.serve_preflight.Host", lambda: made)
    run(model, *given, status=0)
    captured = capsys.readouterr()
    assert "finding " not in captured.out and captured.err == "15 ok, 0 findings, 0 hints, 2 skipped\n"
    os.truncate(model / "model-2.safetensors", 500)
    smi(tmp_path / "bin", "".join(card(number, used=50_000) for number in range(4)))
    (tmp_path / "sys/class/iommu/ivhd0").mkdir(parents=True)
    run(model, *given, status=1)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("finding  shards: ")]
    assert "model-2.safetensors has 500 bytes, expected" in lines[at]
    assert lines[at + 1].startswith("         why: ") and lines[at + 2].startswith("         mend: rm ")
    assert captured.err == "12 ok, 2 findings, 1 hint, 2 skipped\n"


def test_request_that_print_refuses_is_refused(tmp_path: Path, capsys: Run) -> None:
    run(tmp_path, "--set", "BIND=0.0.0.0", status=1)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("moet serve preflight: BIND=0.0.0.0 (--set): whoever reaches")
