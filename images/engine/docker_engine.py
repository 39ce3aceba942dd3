"""Loading into Docker, or whatever speaks its API, over a socket."""

from collections.abc import Iterator
from typing import Any

import docker.errors

from images.engine import archive
from images.engine.docker_images import BROKEN, DockerImages, reason
from images.engine.errors import EngineError
from images.engine.interface import Progress
from images.engine.layout import Image
from images.engine.reference import Reference
from images.engine.result import LoadResult, refuse_to_move

_NO_SPACE = "no space left on device"


class DockerEngine(DockerImages):
    """One reachable engine, into which images of layouts are loaded.

    Raises:
        EngineError: from the constructor, when nothing answers at the address.
    """

    def load(self, image: Image, reference: Reference, progress: Progress) -> LoadResult:
        """Load `image` and point `reference` at it.

        The engine's classic store knows layers by their chain (a layer and all below it), so the layers that it
        lacks are those after the longest run shared with one of its images. Other stores are sent everything.

        Raises:
            EngineError: the engine refused, ran out of space, or holds another image than the layout's afterwards;
                or `reference` is a release's tag and points at another image already.
        """
        expected = self.own_id(image.config.digest, image.manifest.digest)
        before = self._id(str(reference))
        refuse_to_move(self.name, reference, before, expected)
        sent, skipped = 0, len(image.layers)
        if self._id(expected) != expected:
            skipped = self._shared(image)
            try:
                sent = self._send(archive.build(image, reference, skipped), progress)
            except _LayersGoneError:
                skipped = 0
                sent = self._send(archive.build(image, reference, skipped), progress)
        if self._id(str(reference)) != expected and self._id(expected) == expected:
            self._api.tag(expected, reference.repository, reference.tag, force=True)
        found = self._id(str(reference))
        if found != expected:
            held = f"{self.name} holds {found or 'no image'} as {reference}"
            raise EngineError(f"{held}; {expected} was loaded; remove that tag and load again")
        return LoadResult(
            engine=self.name,
            reference=str(reference),
            image_id=expected,
            manifest_digest=image.manifest.digest,
            bytes_sent=sent,
            layers_sent=len(image.layers) - skipped,
            layers_skipped=skipped,
            replaced=before if before != expected else None,
        )

    def _id(self, name: str) -> str | None:
        found = self._inspect(name)
        return None if found is None else str(found["Id"])

    def _shared(self, image: Image) -> int:
        if self._podman or self._containerd:
            return 0
        wanted = [layer.diff_id for layer in image.layers]
        return max((_common(wanted, chain) for chain in self._chains()), default=0)

    def _chains(self) -> Iterator[list[str]]:
        for entry in self._api.images(all=True):
            try:
                yield self._api.inspect_image(entry["Id"])["RootFS"].get("Layers") or []
            except docker.errors.ImageNotFound:
                continue

    def _send(self, tar: archive.Archive, progress: Progress) -> int:
        progress.start(f"sending to {self.name}", tar.size)
        try:
            unpacking = _Unpacking(progress)
            for event in self._api.load_image(tar.chunks(progress.advance), quiet=False):
                if "error" in event:
                    self._refused(event["error"])
                unpacking.show(event)
        except docker.errors.APIError as error:
            self._refused(str(error.explanation))
        except BROKEN as error:
            self._refused(f"{self.name} closed the connection ({reason(error)}); its own log says why")
        return tar.size

    def _refused(self, message: str) -> None:
        root = self._info.get("DockerRootDir", "the engine's data root")
        if _NO_SPACE in message:
            full = f"{self.name} has no space left under {root}"
            raise EngineError(f"{full}; free some there and load again (nothing was kept)")
        refusal = f"{self.name} did not take the image: {' '.join(message.split())}"
        if "no such file or directory" in message and "blobs/sha256" in message:
            raise _LayersGoneError(refusal)
        raise EngineError(refusal)


class _Unpacking:
    """Docker's events of a load, as a phase for each layer."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._layer = ""
        self._done = 0

    def show(self, event: dict[str, Any]) -> None:
        detail = event.get("progressDetail") or {}
        if "current" not in detail:
            return
        if event.get("id") != self._layer:
            self._layer, self._done = event.get("id", ""), 0
            self._progress.start(f"unpacking layer {self._layer}", detail.get("total", 0))
        self._progress.advance(detail["current"] - self._done)
        self._done = detail["current"]


class _LayersGoneError(EngineError):
    """A layer that the tar left out is no longer in the engine."""


def _common(left: list[str], right: list[str]) -> int:
    same = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        same += 1
    return same
