"""Pushing to a registry on loopback, and what refusals look like."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import layout, push
from images.registry.client import Registry
from tests.engine.engines import loopback_registry, private_dockerd
from tests.engine.synthetic import make_layout, noise


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with loopback_registry() as address:
        yield address


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_layout(tmp_path / "layout", "line:r1", [{"base": noise(1, 1_000_000)}, {"top": b"1"}])


def _fails(capsys: pytest.CaptureFixture[str], directory: Path, *arguments: str) -> str:
    assert push.main(["--layout", str(directory), "--ref", "line:r1", *arguments]) == 1
    message = capsys.readouterr().err
    assert message.startswith("push: ") and message.count("\n") == 1
    return message


def test_digests_are_kept_all_the_way(registry: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = layout.read(directory)
    target = f"{registry}/moet/line:r1"
    for _ in range(2):
        assert push.main(["--layout", str(directory), "--ref", "line:r1", "--plain-http", "--json", target]) == 0
        assert json.loads(capsys.readouterr().out)["manifest_digest"] == image.manifest.digest
    with private_dockerd() as engine:
        pulled = engine.client.images.pull(f"{registry}/moet/line", tag="r1")
        assert pulled.id == image.config.digest
        assert pulled.attrs["RepoDigests"] == [f"{registry}/moet/line@{image.manifest.digest}"]


def test_tls_verify_false_is_plain_http(registry: str, directory: Path) -> None:
    target = f"{registry}/moet/line:r2"
    assert push.main(["--layout", str(directory), "--ref", "line:r1", "--tls-verify=false", target]) == 0


def test_plain_http_must_be_asked_for(registry: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "pass --plain-http" in _fails(capsys, directory, f"{registry}/line:r1")


def test_bad_references(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'Line' is not an image name" in _fails(capsys, directory, "127.0.0.1:1/Line:r1")
    assert "names no registry" in _fails(capsys, directory, "line:r1")
    assert "nothing listens at 127.0.0.1:1" in _fails(capsys, directory, "127.0.0.1:1/line:r1", "--plain-http")


def test_a_registry_that_wants_a_login(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loopback_registry(closed=True) as address:
        message = _fails(capsys, directory, f"{address}/line:r1", "--plain-http")
    assert "log in first" in message


def test_a_release_is_not_moved_and_other_tags_are(
    registry: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = layout.read(directory)
    other = layout.read(make_layout(tmp_path / "other", "line:r1", [{"top": b"2"}]))
    for name in ("line:base1.0-r1", "line:base1.0-r1-dev"):
        target = ["--plain-http", f"{registry}/moet/{name}"]
        for _ in range(2):
            assert push.main(["--layout", str(directory), "--ref", "line:r1", *target]) == 0
        capsys.readouterr()
        if name.endswith("-dev"):
            assert push.main(["--layout", str(other.directory), "--ref", "line:r1", *target]) == 0
            assert f"the tag moved: it stood for {first.manifest.digest}" in capsys.readouterr().out
        else:
            message = _fails(capsys, other.directory, *target)
            assert first.manifest.digest in message and "never moved" in message
    with Registry(registry, plain_http=True) as client:
        for tag, image in (("base1.0-r1", first), ("base1.0-r1-dev", other)):
            found = client.resolve("moet/line", tag)
            assert found and found.digest == image.manifest.digest
