"""Loading into Docker, or whatever speaks its API, over a socket."""

import os
from collections.abc import Iterator
from typing import Any, Protocol, cast

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions

from images.engine import archive
from images.engine.errors import EngineError
from images.engine.layout import Image
from images.engine.reference import Reference
from images.engine.result import LoadResult

_NO_SPACE = "no space left on device"
_BROKEN = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError)


class Progress(Protocol):
    """Whoever shows how far a load is."""

    def start(self, what: str, total: int) -> None:
        """A phase begins; `total` is its number of bytes, 0 where nobody knows."""

    def advance(self, amount: int) -> None:
        """`amount` more bytes of the phase are done."""


class DockerEngine:
    """One reachable engine.

    Raises:
        EngineError: from the constructor, when nothing answers at the address.
    """

    def __init__(self, host: str | None) -> None:
        self.host = host or default_host()
        if self.host.startswith("ssh:"):
            forward = "ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST"
            raise EngineError(f"{self.host}: ssh is not spoken here; forward the socket ({forward}) and name that one")
        try:
            self._client = docker.DockerClient(base_url=self.host, timeout=1800)
            self._api: Any = self._client.api
            version = self._client.version()
            self._info = self._client.info()
        except (docker.errors.DockerException, *_BROKEN) as error:
            raise EngineError(f"no engine answers at {self.host} ({_reason(error)})") from error
        driver = self._info.get("DriverStatus") or []
        components = {part["Name"] for part in version.get("Components", [])}
        self._podman = "Podman Engine" in components
        self._containerd = any("io.containerd.snapshotter" in value for _, value in driver)
        self.name = f"{'podman' if self._podman else 'docker'} {version['Version']}"

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    def load(self, image: Image, reference: Reference, progress: Progress) -> LoadResult:
        """Load `image` and point `reference` at it.

        The engine's classic store knows layers by their chain (a layer and all below it), so the layers that it
        lacks are those after the longest run shared with one of its images. Other stores are sent everything.

        Raises:
            EngineError: the engine refused, ran out of space, or holds another image than the layout's afterwards.
        """
        expected = image.manifest.digest if self._containerd else image.config.digest
        before = self._id(str(reference))
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
        try:
            return cast(str, self._api.inspect_image(name)["Id"])
        except docker.errors.ImageNotFound:
            return None

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
        except _BROKEN as error:
            self._refused(f"{self.name} closed the connection ({_reason(error)}); its own log says why")
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


def default_host() -> str:
    """Where the user's Docker is: DOCKER_HOST, else the current context of their Docker configuration."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    context = docker.ContextAPI.get_current_context()
    return str(context.Host if context else "unix:///var/run/docker.sock")


def _common(left: list[str], right: list[str]) -> int:
    same = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        same += 1
    return same


def _reason(error: BaseException) -> str:
    while error.__cause__ or error.__context__:
        error = cast(BaseException, error.__cause__ or error.__context__)
    return getattr(error, "strerror", None) or " ".join(str(error).split())
