"""Images in a real Docker, podman and registry of the test's own, and in the tars that these save."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import load
from images.engine.layout import read
from images.inspect import source
from images.inspect.example import make_tree, meddled, moet, moet_json
from images.registry.client import INDEX, Registry
from releases.known import Known
from tests.engine.engines import Dockerd, Podman, loopback_registry, private_dockerd, private_podman
from tests.engine.synthetic import make_layout, make_moet_layout
from tools.cli.errors import UserError

R0, R1, DEV = "dsv41:vllm0.33.0-r0", "dsv41:vllm0.33.0-r1", "dsv41:vllm0.33.0-r2-dev"


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("layouts")
    return {
        R0: make_moet_layout(folder / "r0", R0, steps=()),
        R1: make_moet_layout(folder / "r1", R1),
        DEV: make_moet_layout(folder / "dev", DEV),
    }


@pytest.fixture(scope="module")
def tree(layouts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree"), {tag: layouts[tag] for tag in (R0, R1)})


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with private_dockerd() as engine:
        yield engine


@pytest.fixture
def docker(dockerd: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dockerd:
    """An empty engine, and a host without state."""
    for image in dockerd.client.images.list(all=True):
        dockerd.client.images.remove(image.attrs["Id"], force=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return dockerd


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with private_podman() as engine, pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment.items():
            patch.setenv(name, value)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield engine


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with loopback_registry() as address:
        yield address


def _load(layout: Path, tag: str, *engine: str) -> None:
    assert load.main(["--layout", str(layout), "--ref", tag, *engine]) == 0


def _push(layout: Path, name: str) -> None:
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false"]
    _run(*copy, read(layout).source, f"docker://{name}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_image_in_docker(docker: Dockerd, layouts: dict[str, Path], tree: Path) -> None:
    host = ("--host", docker.host)
    _load(layouts[R1], R1, *host)
    _load(layouts[DEV], DEV, *host)
    image = read(layouts[R1])
    short = image.config.digest[7:19]
    for text in (f"engine://{R1}", short):
        found = moet_json("image", "explain", text, *host, "--tree", str(tree))
        assert found["source"]["kind"] == "engine" and image.config.digest in found["source"]["where"]
        assert (found["release"], found["digest"]) == (R1, image.manifest.digest)
        assert [layer["size"] for layer in found["layers"]] == [layer.blob.size for layer in image.layers]
        assert found["checked"][-1] == f"what the engine tells against the record of {R1}"
    expected = moet_json("image", "explain", R1, "--tree", str(tree))
    assert found["steps"] == expected["steps"] and found["pins"] == expected["pins"]
    # What no record knows is on the engine's word.
    found = moet_json("image", "explain", DEV, *host, "--tree", str(tree))
    assert (found["tag"], found["digest"], found["release"]) == (DEV, None, None)
    assert [layer["name"] for layer in found["layers"]][-1] == "manifest.layer"
    assert found["layers"][0]["digest"] is None and found["trusted"]
    text = moet("image", "diff", R1, DEV, *host, "--tree", str(tree))[1]
    assert "? in 1 layers, pulled" in text


def test_docker_refuses(docker: Dockerd, tmp_path: Path, tree: Path) -> None:
    host = ("--host", docker.host)
    _load(make_layout(tmp_path / "other", "other:1", [{"a": b"1"}]), "other:1", *host)
    status, _, error = moet("image", "explain", "other:1", *host)
    assert status == 1 and "is no image of Moet's" in error
    status, _, error = moet("image", "explain", "nothing:1", *host, "--tree", str(tree))
    assert status == 1 and "no known release" in error and "has no image 'nothing:1'" in error


def test_saved_by_docker(docker: Dockerd, layouts: dict[str, Path], tree: Path, tmp_path: Path) -> None:
    host = ("--host", docker.host)
    _load(layouts[R1], R1, *host)
    path = tmp_path / "saved.tar"
    _run("docker", *host, "save", "--output", str(path), R1)
    found = moet_json("image", "explain", str(path), "--tree", str(tree))
    image = read(layouts[R1])
    assert (found["source"]["kind"], found["release"], found["image_id"]) == ("tar", R1, image.config.digest)
    assert found["digest"] is None and found["layers"][-1]["diff_id"] == image.layers[-1].diff_id
    diff = moet_json("image", "diff", str(layouts[R0]), str(path), "--files", "--tree", str(tree))
    assert [each["path"].rpartition("/")[2] for each in diff["contents"]["added"]] == ["RECORD", "next.py", "tiers.py"]
    # Both images in one tar.
    _load(layouts[R0], R0, *host)
    both = tmp_path / "both.tar"
    _run("docker", *host, "save", "--output", str(both), R0, R1)
    status, _, error = moet("image", "explain", str(both))
    assert status == 1 and "has 2 images" in error and "--ref" in error
    assert moet_json("image", "explain", str(both), "--ref", R0)["tag"] == R0


def test_image_in_podman_and_saved_by_it(
    podman: Podman, layouts: dict[str, Path], tree: Path, tmp_path: Path
) -> None:
    _load(layouts[R1], R1, "--engine", "podman")
    image = read(layouts[R1])
    found = moet_json("image", "explain", f"engine://{R1}", "--engine", "podman", "--tree", str(tree))
    assert (found["release"], found["image_id"], found["source"]["kind"]) == (R1, image.config.digest, "engine")
    listed = moet_json("image", "list", "--engine", "podman", "--tree", str(tree))
    assert listed["tags"][0]["engine"] == [image.config.digest] and not listed["disagree"]
    for form in ("docker-archive", "oci-archive"):
        path = tmp_path / f"{form}.tar"
        done = podman("save", "--format", form, "--output", str(path), R1)
        assert done.returncode == 0, done.stderr
        found = moet_json("image", "explain", str(path), "--tree", str(tree))
        assert (found["source"]["kind"], found["release"], found["image_id"]) == ("tar", R1, image.config.digest)


def test_image_in_a_registry(registry: str, layouts: dict[str, Path], tree: Path) -> None:
    name = f"{registry}/moet/{R1}"
    _push(layouts[R1], name)
    image = read(layouts[R1])
    by_layout = moet_json("image", "explain", str(layouts[R1]), "--tree", str(tree))
    for text in (name, f"{registry}/moet/dsv41@{image.manifest.digest}", f"registry://{name}"):
        found = moet_json("image", "explain", text, "--plain-http", "--tree", str(tree))
        assert {key for key in found if found[key] != by_layout[key]} == {"source"}
        assert found["source"]["kind"] == "registry"
    diff = moet_json("image", "diff", str(layouts[R0]), name, "--plain-http", "--files")
    assert len(diff["contents"]["added"]) == 3
    for text, words in (
        (f"{registry}/moet/dsv41:none", "dsv41:none"),
        (f"{registry}/moet/dsv41", "has no tag"),
        (f"{registry}/moet/dsv41@sha256:1", "sha256:1"),
        (f"{registry}/Moet/dsv41:x", "Moet/dsv41"),
    ):
        status, _, error = moet("image", "explain", text, "--plain-http", "--tree", str(tree))
        assert status == 1 and words in error and error.count("\n") == 1


def test_index_in_a_registry(registry: str, layouts: dict[str, Path]) -> None:
    """One image of an index is meant; of several, none is guessed; a signature is no image."""
    image = read(layouts[R1])
    _push(layouts[R1], f"{registry}/index:image")
    kind = "application/vnd.oci.image.manifest.v1+json"
    one = {"mediaType": kind, "digest": image.manifest.digest, "size": image.manifest.size}
    amd, arm = ({**one, "platform": {"os": "linux", "architecture": name}} for name in ("amd64", "arm64"))
    signature = {**one, "artifactType": "application/vnd.example.signature"}
    attestation = {**one, "platform": {"os": "unknown", "architecture": "unknown"}}
    with Registry(registry, True) as client:
        for tag, entries in (("one", [amd, signature, attestation]), ("two", [amd, arm])):
            document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
            client.push_manifest("index", tag, INDEX, json.dumps(document).encode())
    assert moet_json("image", "explain", f"{registry}/index:one", "--plain-http")["digest"] == image.manifest.digest
    status, _, error = moet("image", "explain", f"{registry}/index:two", "--plain-http")
    assert status == 1 and "has 2 images, linux/amd64 sha256:" in error and "linux/arm64" in error


def test_engine_that_lies(
    docker: Dockerd, layouts: dict[str, Path], tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _load(layouts[R1], R1, "--host", docker.host)
    known = Known.find(tree)
    where = "images.engine.docker_images.DockerImages"
    monkeypatch.setattr(f"{where}.layers", lambda _self, _id: [f"sha256:{'1' * 64}"])
    with pytest.raises(UserError, match="other layers than its record"):
        source.open_image(f"engine://{R1}", known, host=docker.host)
    monkeypatch.undo()
    monkeypatch.setattr(f"{where}.read_file", lambda _self, _id, _path: b"{}")
    with pytest.raises(UserError, match="altered"):
        source.open_image(f"engine://{R1}", known, host=docker.host)


def test_list_where_all_agree(docker: Dockerd, registry: str, layouts: dict[str, Path], tree: Path) -> None:
    for tag in (R0, R1, DEV):
        _load(layouts[tag], tag, "--host", docker.host)
    for tag in (R1, DEV):
        _push(layouts[tag], f"{registry}/agree/{tag}")
    command = ("image", "list", "dsv41", "--registry", f"{registry}/agree/dsv41", "--plain-http")
    found = moet_json(*command, "--host", docker.host, "--tree", str(tree))
    rows = {row["tag"]: row for row in found["tags"]}
    assert list(rows) == [R1, R0, DEV] and not found["disagree"]
    assert rows[R0]["engine"] == [rows[R0]["image_id"]] and rows[R0]["registry"] is None
    assert rows[R1]["registry"] == rows[R1]["digest"]
    assert rows[DEV]["unreleased"] and rows[DEV]["registry"] == read(layouts[DEV]).manifest.digest
    assert "unreleased" in moet(*command, "--host", docker.host, "--tree", str(tree))[1]


def test_list_where_they_disagree(
    docker: Dockerd, registry: str, layouts: dict[str, Path], tree: Path, tmp_path: Path
) -> None:
    """Docker's r1 is another image, r0's tag points at r1, r5 was never released; the registry's r0 is another."""
    host = ("--host", docker.host)
    other = make_moet_layout(tmp_path / "other", R1, pins={"torch": "1"})
    unknown = make_moet_layout(tmp_path / "unknown", "dsv41:vllm0.33.0-r5")
    _load(other, R1, *host)
    docker.client.images.get(R1).tag("dsv41", "vllm0.33.0-r0")
    _load(unknown, "dsv41:vllm0.33.0-r5", *host)
    _push(layouts[R1], f"{registry}/disagree/{R0}")
    _push(unknown, f"{registry}/disagree/dsv41:vllm0.33.0-r5")
    command = ("image", "list", "--registry", f"{registry}/disagree/dsv41", "--plain-http", *host, "--tree", str(tree))
    rows = {row["tag"]: row["problems"] for row in moet_json(*command, status=3)["tags"]}
    identifier, expected = read(other).config.digest, read(layouts[R1]).config.digest
    assert any(f"has {identifier} of it, CHANGELOG.md says {expected}" in problem for problem in rows[R1])
    assert any(f"has it at {identifier}, which says that it is {R1}" in problem for problem in rows[R0])
    digest = read(layouts[R1]).manifest.digest
    assert any(f"{registry}/disagree/dsv41 has {digest}, CHANGELOG.md says" in problem for problem in rows[R0])
    assert len([problem for problem in rows["dsv41:vllm0.33.0-r5"] if "no such release" in problem]) == 2
    status, text, _ = moet(*command)
    assert status == 3 and "DISAGREES" in text and f"{R1}: docker" in text


def test_labels_that_a_terminal_would_obey(docker: Dockerd, layouts: dict[str, Path], tmp_path: Path) -> None:
    def relabel(config: dict[str, dict[str, dict[str, str]]], _: object) -> None:
        config["config"]["Labels"]["org.moet.tag"] = "dsv41:\x1b[2J"

    _load(meddled(layouts[R1], tmp_path / "evil", relabel), R1, "--host", docker.host)
    _, text, _ = moet("image", "list", "--host", docker.host)
    assert r"dsv41:\x1b[2J" in text and all(line.isprintable() for line in text.splitlines())
