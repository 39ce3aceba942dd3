"""What a real podman holds, what is in it, and pulls by digest from a registry on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import layout, push
from images.engine.errors import EngineError
from images.engine.layout import Image
from images.engine.podman_engine import PodmanEngine
from tests.engine.engines import Podman, loopback_registry, private_podman
from tests.engine.loading import Quiet, load
from tests.engine.synthetic import make_layout, make_moet_layout, noise

_FILES = {"etc/words": b"one two\n", "usr/share/long": noise(3, 300_000)}


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with private_podman() as engine, pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment.items():
            patch.setenv(name, value)
        yield engine


@pytest.fixture(scope="module")
def image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Image:
    directory = make_layout(tmp_path_factory.mktemp("r1") / "layout", "line:r1", [{"base": b"1"}, _FILES], ["A=b"])
    made = layout.read(directory)
    load(PodmanEngine(), made, "line:r1")
    return made


def test_lists_finds_and_reads(image: Image, podman: Podman) -> None:
    engine = PodmanEngine()
    (found,) = engine.images()
    assert (found.image_id, found.tags) == (image.config.digest, ("line:r1",))
    assert found.digests == (f"line@{image.manifest.digest}",)
    for name in ("line:r1", image.config.digest, image.config.digest[7:19]):
        assert engine.find(name) == found
    for name in ("line:r2", "sha256:" + "0" * 64, "--help", "../x", ""):
        assert engine.find(name) is None
    for path, data in _FILES.items():
        assert engine.read_file(image.config.digest, "/" + path) == data
    for path in ("/no/such", "/etc"):
        assert engine.read_file(image.config.digest, path) is None
    assert podman("ps", "--all", "--quiet").stdout == ""
    assert engine.layers(image.config.digest) == [layer.diff_id for layer in image.layers]
    assert engine.config(image.config.digest)["Env"] == ["A=b"]
    with pytest.raises(EngineError, match=r"^podman .* has no image line:r9$"):
        engine.read_file("line:r9", "/etc/words")


def test_history_is_the_layers(podman: Podman, tmp_path: Path) -> None:
    made = layout.read(make_moet_layout(tmp_path / "m", "line:vllm1.0-r1"))
    load(PodmanEngine(), made, "line:vllm1.0-r1")
    stated = [(one["created_by"], one["comment"]) for one in json.loads(made.config.path.read_bytes())["history"]]
    assert PodmanEngine().history(made.config.digest) == stated


def test_pulls_by_digest_and_tags_once(podman: Podman, image: Image, tmp_path: Path) -> None:
    engine = PodmanEngine()
    made = layout.read(make_layout(tmp_path / "p", "p:r1", [{"base": b"1"}, {"top": b"p"}]))
    with loopback_registry() as registry:
        target = f"{registry}/moet/p:r1"
        assert push.main(["--layout", str(made.directory), "--ref", "p:r1", "--plain-http", target]) == 0
        found = engine.pull(f"{registry}/moet/p@{made.manifest.digest}", True, Quiet())
        missing = f"{registry}/moet/p@sha256:{'0' * 64}"
        with pytest.raises(EngineError, match=rf"^{missing} was not pulled: the registry has no such manifest"):
            engine.pull(missing, True, Quiet())
    assert (found.image_id, found.tags) == (made.config.digest, ())
    engine.tag(found.image_id, "line:base1.0-r1")
    engine.tag(found.image_id, "line:base1.0-r1")
    with pytest.raises(EngineError, match="a tag is not moved"):
        engine.tag(image.config.digest, "line:base1.0-r1")
    with pytest.raises(EngineError, match="never moved"):
        load(engine, image, "line:base1.0-r1")
    again = engine.find("line:base1.0-r1")
    assert again and again.image_id == made.config.digest
