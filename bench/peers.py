"""How others make an image of a tree of files; each does it in a folder of its own and is measured."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import meter, programs
from bench.meter import Cost
from bench.programs import BenchError, Word
from tests.engine import engines, scratch

_DOCKERFILE = "FROM scratch\nCOPY tree/ /\n"
_ANY_SIGNATURE = {"default": [{"type": "insecureAcceptAnything"}]}


@dataclass(frozen=True)
class Sample:
    """One run: its cost, and the bytes of the image that it left (Docker's are not compressed)."""

    cost: Cost
    image_bytes: int


@dataclass(frozen=True)
class Peer:
    """A way to an image: `make` takes a build context (Dockerfile and tree/) and an empty folder.

    `programs` maps those that it needs to their Debian packages.
    """

    name: str
    title: str
    programs: Mapping[str, str]
    make: Callable[[Path, Path], Sample]


def make_context(folder: Path) -> Path:
    """Make `folder` a build context and return the place of its tree, which is not there yet."""
    folder.mkdir()
    (folder / "Dockerfile").write_text(_DOCKERFILE)
    return folder / "tree"


def umoci(context: Path, work: Path) -> Sample:
    """A new layout with the tree inserted as one layer."""
    layout = work / "layout"

    def make() -> None:
        programs.run(["umoci", "init", "--layout", layout])
        programs.run(["umoci", "new", "--image", f"{layout}:bench"])
        programs.run(["umoci", "insert", "--image", f"{layout}:bench", context / "tree", "/"])

    return Sample(meter.measure(make), layout_bytes(layout))


def buildah(context: Path, work: Path) -> Sample:
    """`buildah bud` of the Dockerfile into a storage of its own, pushed to a layout."""
    layout, storage, policy = work / "layout", work / "storage.conf", work / "policy.json"
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{work}/graph"\nrunroot = "{work}/run"\n')
    policy.write_text(json.dumps(_ANY_SIGNATURE))
    environment = {"CONTAINERS_STORAGE_CONF": str(storage), "TMPDIR": str(work)}

    def make() -> None:
        trusting: list[Word] = ["--quiet", "--signature-policy", policy]
        build: list[Word] = ["buildah", "bud", *trusting, "--isolation", "chroot", "--tag", "bench"]
        programs.run([*build, "--file", context / "Dockerfile", context], environment)
        programs.run(["buildah", "push", *trusting, "bench", f"oci:{layout}:bench"], environment)

    return Sample(meter.measure(make), layout_bytes(layout))


def docker(context: Path, work: Path) -> Sample:
    """`docker build` with the legacy builder, in an engine of its own that has nothing yet."""
    return _docker(context, work, "0")


def docker_buildkit(context: Path, work: Path) -> Sample:
    """`docker build` with BuildKit, in an engine of its own that has nothing yet."""
    return _docker(context, work, "1")


_DOCKER = {"docker": "docker.io", "dockerd": "docker.io"}
PEERS = (
    Peer("umoci", "umoci insert", {"umoci": "umoci"}, umoci),
    Peer("docker", "docker build, legacy builder", _DOCKER, docker),
    Peer("docker-buildkit", "docker build, BuildKit", _DOCKER, docker_buildkit),
    Peer("buildah", "buildah bud + push oci:", {"buildah": "buildah"}, buildah),
)


def layout_bytes(layout: Path) -> int:
    """Bytes of a layout's blobs."""
    return sum(blob.stat().st_size for blob in (layout / "blobs/sha256").iterdir())


def docker_client() -> str:
    """The docker program that came with dockerd, else the first on PATH.

    A newer one first on PATH (as some machines have) has BuildKit only with a plugin.
    """
    beside = Path(programs.find("dockerd", "docker.io")).resolve().parent.parent / "bin/docker"
    return str(beside) if beside.exists() else programs.find("docker", "docker.io")


def engine_pid(engine: engines.Dockerd) -> int:
    """The process id of a private dockerd."""
    return int((engine.runtime / "pid").read_text())


def _docker(context: Path, work: Path, buildkit: str) -> Sample:
    client = docker_client()
    with scratch.folder(work) as data, engines.private_dockerd(data) as engine:
        environment = {"DOCKER_BUILDKIT": buildkit, "DOCKER_CONFIG": str(work), "DOCKER_HOST": engine.host}

        def make() -> None:
            programs.run([client, "build", "--quiet", "--no-cache", "--tag", "bench", context], environment)

        cost = meter.measure(make, [engine_pid(engine)])
        size = engine.client.images.get("bench").attrs["Size"]
        if not isinstance(size, int):
            raise BenchError(f"dockerd states no size of the image it built, but {size!r}")
        return Sample(cost, size)
