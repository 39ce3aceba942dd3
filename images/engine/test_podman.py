"""Loading into a podman with storage of the test's own."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.engine import layout, load
from tests.engine import scratch
from tests.engine.engines import Podman, private_podman
from tests.engine.synthetic import make_layout, name_of, noise

_BASE = {"base": noise(1, 5_000_000)}


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[Podman]:
    with private_podman() as engine:
        for name, value in engine.environment.items():
            monkeypatch.setenv(name, value)
        yield engine


def _load(capsys: pytest.CaptureFixture[str], directory: Path) -> dict[str, Any]:
    assert load.main(["--layout", str(directory), "--ref", name_of(directory), "--engine", "podman", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def _inspect(podman: Podman, name: str) -> dict[str, Any]:
    document: list[dict[str, Any]] = json.loads(podman("image", "inspect", name).stdout)
    return document[0]


def test_whole_incremental_again_and_moved(podman: Podman, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_layout(tmp_path / "_No_Name", "line:r1", [_BASE, {"top": b"1"}])
    result = _load(capsys, first)
    image = layout.read(first)
    found = _inspect(podman, "line:r1")
    assert f"sha256:{found['Id']}" == result["image_id"] == image.config.digest
    assert found["Digest"] == result["manifest_digest"] == image.manifest.digest
    assert found["RepoTags"] == ["localhost/line:r1"]
    assert (result["layers_sent"], result["layers_skipped"]) == (2, 0)

    again = _load(capsys, first)
    assert (again["bytes_sent"], again["layers_skipped"], again["replaced"]) == (0, 2, None)

    moved = _load(capsys, make_layout(tmp_path / "2", "line:r1", [_BASE, {"top": b"2"}]))
    assert (moved["layers_sent"], moved["layers_skipped"], moved["replaced"]) == (1, 1, result["image_id"])
    assert moved["bytes_sent"] < 20_000
    assert _inspect(podman, "line:r1")["Id"] != found["Id"]


def test_podman_behind_dockers_api(podman: Podman, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [_BASE, {"top": b"1"}])
    socket = podman.runtime / "podman.sock"
    arguments = ["--layout", str(directory), "--ref", "line:r1", "--host", f"unix://{socket}", "--json"]
    command = ["podman", "system", "service", "--time=0", f"unix://{socket}"]
    with scratch.process(command, podman.runtime / "log", podman.environment):
        deadline = time.monotonic() + 120
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        for sent in (2, 0):
            assert load.main(arguments) == 0
            result = json.loads(capsys.readouterr().out)
            assert result["engine"].startswith("podman ") and result["layers_sent"] == sent
    assert f"sha256:{_inspect(podman, 'line:r1')['Id']}" == layout.read(directory).config.digest


def test_podman_takes_no_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [{"a": b"1"}])
    arguments = ["--layout", str(directory), "--ref", "line:r1", "--engine", "podman", "--host", "unix:///nowhere"]
    assert load.main(arguments) == 1
    assert "podman itself takes none" in capsys.readouterr().err
