"""A host as the tests of what is current on it have it."""

from dataclasses import dataclass
from pathlib import Path

from tests.engine.engines import Dockerd
from tests.release.toy import LINE, Toy


@dataclass(frozen=True)
class Host:
    """A host with a state of its own: where the toy tree, its state, Docker and a registry with both releases are."""

    toy: Toy
    state: Path
    docker: Dockerd
    registry: str

    def arguments(self, *more: str) -> list[str]:
        """The arguments of a rollback here."""
        return ["image", "rollback", LINE, "--tree", str(self.toy.root), "--host", self.docker.host, *more]

    def from_registry(self, *more: str) -> list[str]:
        """The same, with the registry."""
        return self.arguments("--registry", self.registry, "--plain-http", *more)

    def tags(self) -> dict[str, str]:
        """Tags in the engine, with the ids that they point at."""
        return {tag: str(image.id) for image in self.docker.client.images.list() for tag in image.tags}
