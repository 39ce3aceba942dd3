"""An image of an OCI layout into a registry: its digests kept, its layers in parallel, no tag moved."""

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Protocol

from images.engine.layout import Blob, Image
from images.registry.client import MANIFEST, Registry
from images.registry.descriptor import Descriptor
from images.registry.errors import RegistryError

_AT_ONCE = 3
_OCTETS = "application/octet-stream"


class Progress(Protocol):
    """Whoever shows how far a push is."""

    def start(self, what: str, total: int) -> None:
        """A phase begins; `total` is its number of bytes."""

    def advance(self, amount: int) -> None:
        """`amount` more bytes of the phase are done; negative where some must be sent again."""


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        manifest: the image's descriptor in the registry.
        written: whether the tag was written now; False: it was there with this image.
        sent: blobs that went over the line.
        bytes_sent: their bytes.
        present: blobs that were there already.
    """

    manifest: Descriptor
    written: bool
    sent: int = 0
    bytes_sent: int = 0
    present: int = 0


class TagTakenError(RegistryError):
    """The tag stands for another image in the registry."""


def push_image(registry: Registry, name: str, tag: str, image: Image, progress: Progress) -> Pushed:
    """Makes `name`:`tag` the image. Interrupted and repeated, it sends what is missing.

    Blobs come first, the manifest last, so that a tag never stands for half an image.

    Raises:
        TagTakenError: the tag stands for another image; nothing was sent.
        RegistryError: the registry refused.
    """
    if (found := _held(registry, name, tag, image)) is not None:
        return Pushed(found, False)
    blobs = {blob.digest: blob for blob in (*(layer.blob for layer in image.layers), image.config)}
    sent = _push_blobs(registry, name, list(blobs.values()), progress)
    # Minutes may have passed: somebody else may have been faster.
    manifest = _held(registry, name, tag, image)
    written = manifest is None
    if manifest is None:
        manifest = registry.push_manifest(name, tag, MANIFEST, image.manifest.path.read_bytes())
    return Pushed(manifest, written, len(sent), sum(blob.size for blob in sent), len(blobs) - len(sent))


def _held(registry: Registry, name: str, tag: str, image: Image) -> Descriptor | None:
    found = registry.resolve(name, tag)
    if found is None or found.digest == image.manifest.digest:
        return found
    raise TagTakenError(
        f"{registry.address}/{name}:{tag}: stands for {found.digest} there, {image.manifest.digest} was to be pushed;"
        " a tag is never moved: give the image another tag"
    )


def _push_blobs(registry: Registry, name: str, blobs: list[Blob], progress: Progress) -> list[Blob]:
    """Pushes the blobs, largest first; returns those that had to be sent."""
    stop = threading.Event()

    def advance(amount: int) -> None:
        if stop.is_set():
            raise _StoppedError
        progress.advance(amount)

    def push(blob: Blob) -> bool:
        return registry.push_blob(name, Descriptor(_OCTETS, blob.digest, blob.size), blob.path, advance)

    progress.start(f"pushing to {registry.address}/{name}", sum(blob.size for blob in blobs))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            futures = {pool.submit(push, blob): blob for blob in sorted(blobs, key=lambda blob: -blob.size)}
            return [futures[future] for future in as_completed(futures) if future.result()]
        except BaseException:
            # Gigabytes that nobody waits for.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _StoppedError(Exception):
    """Another blob failed."""
