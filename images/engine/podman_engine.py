"""Loading into podman's local storage with the podman command."""

import tempfile
from dataclasses import replace
from pathlib import Path

from images.engine.errors import EngineError
from images.engine.interface import Progress
from images.engine.layout import Image
from images.engine.podman_images import PodmanImages, check, inspect, podman
from images.engine.reference import Reference
from images.engine.result import LoadResult, refuse_to_move


class PodmanEngine(PodmanImages):
    """The podman on PATH, into whose storage images of layouts are loaded.

    Raises:
        EngineError: from the constructor, when podman is missing or does not work.
    """

    def load(self, image: Image, reference: Reference, progress: Progress) -> LoadResult:
        """Pull `image` from its layout, which fetches only the layers that the storage lacks, and tag it.

        Raises:
            EngineError: podman refused, ran out of space, or holds another image than the layout's afterwards; or
                `reference` is a release's tag and points at another image already.
        """
        identifier = image.config.digest.removeprefix("sha256:")
        before = _id(str(reference))
        refuse_to_move(self.name, reference, before, image.config.digest)
        present = _layers()
        missing = [layer for layer in image.layers if layer.diff_id not in present]
        size = sum(layer.blob.size for layer in missing)
        sent = 0
        if _id(image.config.digest) is None:
            progress.start(f"copying into {self.name}", size)
            _pull(image, identifier)
            progress.advance(size)
            sent = size + image.config.size + image.manifest.size
        else:
            missing = []
        check(podman("tag", identifier, str(reference)))
        found = _id(str(reference))
        if found != image.config.digest:
            held = f"{self.name} holds {found or 'no image'} as {reference}"
            raise EngineError(f"{held}; {image.config.digest} was loaded; load again")
        return LoadResult(
            engine=self.name,
            reference=str(reference),
            image_id=image.config.digest,
            manifest_digest=image.manifest.digest,
            bytes_sent=sent,
            layers_sent=len(missing),
            layers_skipped=len(image.layers) - len(missing),
            replaced=before if before != image.config.digest else None,
        )


def _pull(image: Image, identifier: str) -> None:
    # podman names what it pulls after the layout's path, and refuses paths that make no name.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "image").symlink_to(image.directory)
        check(podman("pull", "--quiet", replace(image, directory=Path("image")).source, folder=folder))
    check(podman("untag", identifier))


def _id(name: str) -> str | None:
    found = inspect(name.removeprefix("sha256:"))
    return f"sha256:{found[0]['Id']}" if found else None


def _layers() -> set[str]:
    names = podman("images", "--all", "--quiet", "--no-trunc").stdout.split()
    found = inspect(*dict.fromkeys(name.removeprefix("sha256:") for name in names)) if names else []
    return {layer for entry in found for layer in entry["RootFS"].get("Layers") or []}
