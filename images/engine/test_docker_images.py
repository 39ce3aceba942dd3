"""What a real dockerd holds, what is in it, and pulls by digest from a registry on loopback."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import docker_pull, layout, push
from images.engine.docker_engine import DockerEngine
from images.engine.docker_images import READING
from images.engine.errors import EngineError
from images.engine.layout import Image
from tests.engine.engines import Dockerd, loopback_registry, private_dockerd
from tests.engine.loading import Quiet, load
from tests.engine.synthetic import make_layout, make_moet_layout, noise

_FILES = {"etc/words": b"one two\n", "usr/share/long": noise(3, 300_000)}


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with private_dockerd() as engine:
        yield engine


@pytest.fixture(scope="module")
def image(dockerd: Dockerd, tmp_path_factory: pytest.TempPathFactory) -> Image:
    directory = make_layout(tmp_path_factory.mktemp("r1") / "layout", "line:r1", [{"base": b"1"}, _FILES], ["A=b"])
    made = layout.read(directory)
    load(DockerEngine(dockerd.host), made, "line:r1")
    return made


@pytest.fixture
def engine(dockerd: Dockerd, image: Image) -> Iterator[DockerEngine]:
    opened = DockerEngine(dockerd.host)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with loopback_registry() as address:
        yield address


class Watched:
    """Progress that is remembered: (phase, total, bytes that it reached)."""

    def __init__(self) -> None:
        self.phases: list[list[int | str]] = []

    def start(self, what: str, total: int) -> None:
        self.phases.append([what, total, 0])

    def advance(self, amount: int) -> None:
        self.phases[-1][2] = int(self.phases[-1][2]) + amount


def test_lists_and_finds(engine: DockerEngine, image: Image) -> None:
    (found,) = engine.images()
    assert (found.image_id, found.tags, found.digests) == (image.config.digest, ("line:r1",), ())
    for name in ("line:r1", image.config.digest, image.config.digest[7:19]):
        assert engine.find(name) == found
    for name in ("line:r2", "sha256:" + "0" * 64, "../../containers/json", "-x", "a b", "", "line:r1\n"):
        assert engine.find(name) is None


def test_says_what_it_is_and_which_containers_there_are(
    engine: DockerEngine, dockerd: Dockerd, image: Image
) -> None:
    assert "runc" in engine.info["Runtimes"] and Path(engine.info["DockerRootDir"]).is_dir()
    assert engine.containers() == []
    made = dockerd.client.containers.create(image.config.digest, ["-"], name="one")
    try:
        (found,) = engine.containers()
        assert (found["Names"], found["State"]) == (["/one"], "created")
    finally:
        made.remove()


def test_reads_files_without_running_anything(engine: DockerEngine, dockerd: Dockerd, image: Image) -> None:
    for path, data in _FILES.items():
        assert engine.read_file(image.config.digest, "/" + path) == data
    for path in ("/no/such", "/etc"):
        assert engine.read_file(image.config.digest, path) is None
    assert dockerd.client.containers.list(all=True, filters={"label": READING}) == []
    with pytest.raises(EngineError, match="No such image"):
        engine.read_file("sha256:" + "0" * 64, "/etc/words")


def test_configuration_and_layers(engine: DockerEngine, image: Image) -> None:
    assert engine.layers(image.config.digest) == [layer.diff_id for layer in image.layers]
    assert engine.config(image.config.digest)["Env"] == ["A=b"]
    assert engine.own_id("sha256:id", "sha256:digest") == "sha256:id"
    with pytest.raises(EngineError, match=r"^docker .* has no image line:r9$"):
        engine.config("line:r9")


def test_history_is_the_layers(engine: DockerEngine, tmp_path: Path, dockerd: Dockerd) -> None:
    made = layout.read(make_moet_layout(tmp_path / "m", "line:vllm1.0-r1"))
    load(DockerEngine(dockerd.host), made, "line:vllm1.0-r1")
    stated = [(one["created_by"], one["comment"]) for one in json.loads(made.config.path.read_bytes())["history"]]
    assert engine.history(made.config.digest) == stated
    assert stated[0] == ("moet rootfs", "rootfs of a test")
    dockerd.client.images.remove("line:vllm1.0-r1")


def test_a_tag_is_not_moved_unless_told(engine: DockerEngine, image: Image, tmp_path: Path, dockerd: Dockerd) -> None:
    other = load(
        DockerEngine(dockerd.host), layout.read(make_layout(tmp_path / "o", "other:1", [{"a": b"2"}])), "other:1"
    )
    engine.tag(image.config.digest, "new:1")
    engine.tag(image.config.digest, "new:1")
    with pytest.raises(EngineError, match=rf"^new:1 is {image.config.digest} in docker .*; a tag is not moved$"):
        engine.tag(other.image_id, "new:1")
    assert dockerd.client.images.get("new:1").id == image.config.digest
    engine.tag(other.image_id, "new:1", move=True)
    assert dockerd.client.images.get("new:1").id == other.image_id
    for name in ("new:1", "other:1"):
        dockerd.client.images.remove(name)


def test_a_release_does_not_change_under_its_tag(engine: DockerEngine, tmp_path: Path, dockerd: Dockerd) -> None:
    name = "line:base1.0-r1"
    first, other = (layout.read(make_layout(tmp_path / str(n), name, [{"a": b"%d" % n}])) for n in (1, 2))
    load(DockerEngine(dockerd.host), first, name)
    load(DockerEngine(dockerd.host), first, name)
    with pytest.raises(EngineError) as caught:
        load(DockerEngine(dockerd.host), other, name)
    message = str(caught.value)
    assert "\n" not in message and "never moved" in message
    assert first.config.digest in message and other.config.digest in message and f"docker rmi {name}" in message
    assert dockerd.client.images.get(name).id == first.config.digest
    assert engine.find(other.config.digest) is None
    load(DockerEngine(dockerd.host), other, name + "-dev")
    load(DockerEngine(dockerd.host), first, name + "-dev")
    for tag in (name, name + "-dev"):
        dockerd.client.images.remove(tag)


def test_pulls_by_digest_with_progress(engine: DockerEngine, registry: str, tmp_path: Path, dockerd: Dockerd) -> None:
    made = layout.read(make_layout(tmp_path / "p", "p:r1", [{"base": b"1"}, {"big": noise(4, 3_000_000)}]))
    arguments = ["--layout", str(made.directory), "--ref", "p:r1", "--plain-http", f"{registry}/moet/p:r1"]
    assert push.main(arguments) == 0
    watched = Watched()
    found = engine.pull(f"{registry}/moet/p@{made.manifest.digest}", True, watched)
    assert found.image_id == made.config.digest and found.tags == ()
    assert found.manifest_digests == {made.manifest.digest}
    assert watched.phases[-1][0] == f"unpacking {registry}/moet/p"
    assert all(int(done) <= int(total) for _, total, done in watched.phases[1:])
    assert watched.phases[-1][2] == watched.phases[-1][1]
    dockerd.client.images.remove(found.image_id, force=True)


@pytest.mark.parametrize(
    ("where", "words"),
    [("registry", "has no such manifest"), ("nobody", "nothing listens there")],
)
def test_pulls_that_fail(engine: DockerEngine, registry: str, where: str, words: str) -> None:
    if where == "nobody":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            registry = f"127.0.0.1:{probe.getsockname()[1]}"
    reference = f"{registry}/moet/none@sha256:{'0' * 64}"
    with pytest.raises(EngineError) as caught:
        engine.pull(reference, True, Quiet())
    assert str(caught.value).startswith(f"{reference} was not pulled: ") and words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_digests_are_pulled(engine: DockerEngine) -> None:
    for reference in ("127.0.0.1:1/line:r1", "line@sha256:" + "0" * 64, "127.0.0.1:1/line@sha256:0"):
        with pytest.raises(EngineError, match=r"digest|registry"):
            engine.pull(reference, True, Quiet())


def test_an_engine_that_goes_away_is_one_line(tmp_path: Path) -> None:
    with private_dockerd() as gone:
        engine = DockerEngine(gone.host)
    with pytest.raises(EngineError, match=r"^docker .* does not answer \("):
        engine.images()
    engine.close()


def test_events_of_layers_that_are_there_already_are_no_progress() -> None:
    watched = Watched()
    shown = docker_pull.Pulling(watched, "x")
    lines = """{"status": "Already exists", "id": "a", "progressDetail": {}}
{"status": "Downloading", "id": "b", "progressDetail": {"current": 5, "total": 10}}
{"status": "Downloading", "id": "c", "progressDetail": {"current": 1, "total": 4}}
{"status": "Download complete", "id": "c", "progressDetail": {}}
{"status": "Download complete", "id": "b", "progressDetail": {}}
{"status": "Extracting", "id": "b", "progressDetail": {"current": 10, "total": 10}}
{"status": "Pull complete", "id": "b", "progressDetail": {}}
{"status": "Pull complete", "id": "c", "progressDetail": {}}"""
    for line in lines.splitlines():
        shown.show(json.loads(line))
    assert watched.phases == [["pulling x", 10, 5], ["pulling x", 14, 9], ["unpacking x", 14, 14]]
