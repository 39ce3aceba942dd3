"""Loading into a real dockerd of the test's own: whole, incremental, again, and onto a full disk."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.engine import layout, load
from tests.engine import scratch
from tests.engine.engines import Dockerd, private_dockerd
from tests.engine.synthetic import make_layout, name_of, noise

_BASE = {"base": noise(1, 5_000_000)}


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with private_dockerd() as engine:
        yield engine


@pytest.fixture
def engine(dockerd: Dockerd) -> Dockerd:
    for image in dockerd.client.images.list(all=True):
        dockerd.client.images.remove(image.attrs["Id"], force=True)
    return dockerd


def _load(capsys: pytest.CaptureFixture[str], engine: Dockerd, directory: Path, *more: str) -> dict[str, Any]:
    assert (
        load.main(["--layout", str(directory), "--ref", name_of(directory), "--host", engine.host, "--json", *more])
        == 0
    )
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_whole_image(engine: Dockerd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [_BASE, {"top": b"1"}], ["A=b"])
    result = _load(capsys, engine, directory)
    image = layout.read(directory)
    found = engine.client.images.get("line:r1")
    assert found.id == result["image_id"] == image.config.digest
    assert found.tags == ["line:r1"]
    assert found.attrs["RootFS"]["Layers"] == [layer.diff_id for layer in image.layers]
    assert found.attrs["Config"]["Env"] == ["A=b"]
    assert (result["layers_sent"], result["layers_skipped"], result["replaced"]) == (2, 0, None)
    assert 5_000_000 < result["bytes_sent"] < 5_100_000


def test_known_layers_are_not_sent(engine: Dockerd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _load(capsys, engine, make_layout(tmp_path / "1", "line:r1", [_BASE, {"top": b"1"}]))
    second = _load(capsys, engine, make_layout(tmp_path / "2", "line:r2", [_BASE, {"top": b"2"}]))
    assert (second["layers_sent"], second["layers_skipped"]) == (1, 1)
    assert second["bytes_sent"] < 20_000
    assert engine.client.images.get("line:r2").id == second["image_id"] != first["image_id"]


def test_a_layer_above_another_base_is_sent(
    engine: Dockerd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine has the layer's bytes, but as part of another chain, which it cannot take apart."""
    _load(capsys, engine, make_layout(tmp_path / "1", "line:r1", [{"below": b"1"}, _BASE]))
    second = _load(capsys, engine, make_layout(tmp_path / "2", "line:r2", [{"below": b"2"}, _BASE]))
    assert (second["layers_sent"], second["layers_skipped"]) == (2, 0)


def test_loading_again_sends_nothing(engine: Dockerd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [_BASE])
    first = _load(capsys, engine, directory)
    again = _load(capsys, engine, directory)
    assert (again["bytes_sent"], again["layers_skipped"], again["replaced"]) == (0, 1, None)
    other = _load(capsys, engine, directory, "--name", "other:tag")
    assert other["bytes_sent"] == 0
    assert sorted(engine.client.images.get(first["image_id"]).tags) == ["line:r1", "other:tag"]


def test_a_tag_that_moves_is_reported(engine: Dockerd, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = _load(capsys, engine, make_layout(tmp_path / "1", "line:r1", [_BASE, {"top": b"1"}]))
    directory = make_layout(tmp_path / "2", "line:r1", [_BASE, {"top": b"2"}])
    assert load.main(["--layout", str(directory), "--ref", "line:r1", "--host", engine.host]) == 0
    words = capsys.readouterr().out
    assert f"the tag moved: it pointed at {first['image_id']}" in words
    assert engine.client.images.get("line:r1").id == layout.read(directory).config.digest
    assert engine.client.images.get(first["image_id"]).tags == []


def test_layers_that_vanish_are_sent_after_all(
    engine: Dockerd, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("images.engine.docker_engine.DockerEngine._shared", lambda _self, _image: 1)
    result = _load(capsys, engine, make_layout(tmp_path / "1", "line:r1", [_BASE, {"top": b"1"}]))
    assert (result["layers_sent"], result["layers_skipped"]) == (2, 0)


def test_a_full_disk_leaves_no_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = make_layout(tmp_path / "small", "small:r1", [{"a": b"1"}])
    large = make_layout(tmp_path / "large", "large:r1", [{"a": noise(2, 30_000_000)}, {"b": noise(3, 30_000_000)}])
    with scratch.folder() as disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], check=True)
        with private_dockerd(disk / "data") as engine:
            _load(capsys, engine, small)
            used = _used(disk)
            assert load.main(["--layout", str(large), "--ref", "large:r1", "--host", engine.host]) == 1
            message = capsys.readouterr().err
            assert "has no space left under" in message and message.count("\n") == 1
            assert [image.tags for image in engine.client.images.list(all=True)] == [["small:r1"]]
            assert _used(disk) < used + 1_000_000
            _load(capsys, engine, small)


def test_no_engine_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [{"a": b"1"}])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert load.main(["--layout", str(directory), "--ref", "line:r1"]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for words in (
        f"no engine answers at unix://{tmp_path}/none.sock",
        "no podman on PATH",
        "start Docker or install podman",
    ):
        assert words in message


@pytest.mark.parametrize(
    ("host", "words"), [("ssh://other", "forward the socket"), ("/a/path", "Invalid bind address")]
)
def test_addresses_that_cannot_be_used(
    host: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [{"a": b"1"}])
    assert load.main(["--layout", str(directory), "--ref", "line:r1", "--host", host]) == 1
    message = capsys.readouterr().err
    assert words in message and message.count("\n") == 1


def _used(disk: Path) -> int:
    done = subprocess.run(
        ["df", "--block-size=1", "--output=used", str(disk)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])
