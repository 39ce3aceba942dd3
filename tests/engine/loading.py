"""Putting an image into an engine as `bazel run ...:load` does, without a progress bar."""

from images.engine import reference
from images.engine.docker_engine import DockerEngine
from images.engine.layout import Image
from images.engine.podman_engine import PodmanEngine
from images.engine.result import LoadResult


class Quiet:
    """Progress that nobody sees."""

    def start(self, what: str, total: int) -> None:
        """A phase begins."""

    def advance(self, amount: int) -> None:
        """A phase goes on."""


def load(engine: DockerEngine | PodmanEngine, image: Image, name: str) -> LoadResult:
    """Load `image` as `name`, NAME:TAG, and close the engine."""
    try:
        return engine.load(image, reference.parse(name), Quiet())
    finally:
        engine.close()
