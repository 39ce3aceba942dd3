"""Pushing to a registry on loopback, and what refusals look like."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import layout, push
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
    assert "nothing listens there" in _fails(capsys, directory, "127.0.0.1:1/line:r1", "--plain-http")


def test_a_registry_that_wants_a_login(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with loopback_registry(closed=True) as address:
        message = _fails(capsys, directory, f"{address}/line:r1", "--plain-http")
    assert "log in first" in message


def test_skopeo_missing(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install skopeo" in _fails(capsys, directory, "127.0.0.1:1/line:r1")


def test_another_manifest_behind_the_tag_is_seen(
    registry: str, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run

    def other_bytes(command: list[str], **options: object) -> object:
        done = run(command, **options)  # type: ignore[call-overload]
        if "inspect" in command:
            done.stdout += b" "
        return done

    monkeypatch.setattr("images.engine.push.subprocess.run", other_bytes)
    assert "someone else wrote the tag" in _fails(capsys, directory, f"{registry}/moet/line:r3", "--plain-http")
