"""What an engine is to everything else: the images that it holds, and how one gets there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from images.engine.layout import Image
from images.engine.reference import Reference
from images.engine.result import LoadResult


class Progress(Protocol):
    """Whoever shows how far something long is."""

    def start(self, what: str, total: int) -> None:
        """A phase begins; `total` is its number of bytes, 0 where nobody knows."""

    def advance(self, amount: int) -> None:
        """`amount` more bytes of the phase are done."""


@dataclass(frozen=True)
class EngineImage:
    """An image that an engine holds.

    Attributes:
        image_id: sha256:<hex>, the engine's own: the configuration's digest, the manifest's in a containerd store.
        tags: NAME:TAG, without the `localhost/` that podman puts before names that have no registry.
        digests: NAME@sha256:<hex> of manifests, those that the engine knows.
        labels: the image's labels.
    """

    image_id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def manifest_digests(self) -> frozenset[str]:
        """sha256:<hex> of `digests`."""
        return frozenset(digest.partition("@")[2] for digest in self.digests)


class Engine(Protocol):
    """Docker or podman."""

    name: str

    def close(self) -> None:
        """Give back what is held open."""

    def images(self) -> list[EngineImage]:
        """All images, with a tag or without."""

    def find(self, name: str) -> EngineImage | None:
        """The image called `name`: NAME:TAG, NAME@DIGEST, an id or the beginning of one; None where there is none."""

    def own_id(self, image_id: str, digest: str) -> str:
        """The id here of the image with this configuration's and this manifest's digest, whether held or not."""

    def layers(self, image_id: str) -> list[str]:
        """The image's diff_ids, lowest first."""

    def config(self, image_id: str) -> dict[str, Any]:
        """The `config` part of the image's configuration: Env, Labels, Entrypoint and so on."""

    def history(self, image_id: str) -> list[tuple[str, str]]:
        """(created_by, comment) of the image's history, lowest layer first."""

    def read_file(self, image_id: str, path: str) -> bytes | None:
        """The bytes of a regular file of the image, which is not run; None where there is none at `path`."""

    def load(self, image: Image, reference: Reference, progress: Progress) -> LoadResult:
        """Load `image` and point `reference` at it."""

    def pull(self, reference: str, plain_http: bool, progress: Progress) -> EngineImage:
        """Pull REGISTRY/NAME@DIGEST; the tag, if any, is left as it is."""

    def tag(self, image_id: str, reference: str, move: bool = False) -> None:
        """Point NAME:TAG at an image; a tag that points at another one is moved only with `move`."""
