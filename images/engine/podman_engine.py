"""Loading into podman's local storage with the podman command."""

import json
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from images.engine.docker_engine import Progress
from images.engine.errors import EngineError
from images.engine.layout import Image
from images.engine.reference import Reference
from images.engine.result import LoadResult


class PodmanEngine:
    """The podman on PATH, with the storage that the user's configuration (or CONTAINERS_STORAGE_CONF) names.

    Raises:
        EngineError: from the constructor, when podman is missing or does not work.
    """

    def __init__(self) -> None:
        if not shutil.which("podman"):
            raise EngineError("no podman on PATH")
        done = _podman("version", "--format", "json")
        if done.returncode:
            raise EngineError(f"podman does not work here ({_last(done.stderr)})")
        self.name = f"podman {json.loads(done.stdout)['Client']['Version']}"

    def close(self) -> None:
        """Nothing is held open."""

    def load(self, image: Image, reference: Reference, progress: Progress) -> LoadResult:
        """Pull `image` from its layout, which fetches only the layers that the storage lacks, and tag it.

        Raises:
            EngineError: podman refused, ran out of space, or holds another image than the layout's afterwards.
        """
        identifier = image.config.digest.removeprefix("sha256:")
        before = _id(str(reference))
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
        _check(_podman("tag", identifier, str(reference)))
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


def _podman(*arguments: str, folder: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def _pull(image: Image, identifier: str) -> None:
    # podman names what it pulls after the layout's path, and refuses paths that make no name.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "image").symlink_to(image.directory)
        _check(_podman("pull", "--quiet", replace(image, directory=Path("image")).source, folder=folder))
    _check(_podman("untag", identifier))


def _inspect(*names: str) -> list[dict[str, Any]]:
    done = _podman("image", "inspect", *names)
    return cast(list[dict[str, Any]], json.loads(done.stdout)) if done.returncode == 0 else []


def _id(name: str) -> str | None:
    found = _inspect(name.removeprefix("sha256:"))
    return f"sha256:{found[0]['Id']}" if found else None


def _layers() -> set[str]:
    names = _podman("images", "--all", "--quiet", "--no-trunc").stdout.split()
    found = _inspect(*dict.fromkeys(name.removeprefix("sha256:") for name in names)) if names else []
    return {layer for entry in found for layer in entry["RootFS"].get("Layers") or []}


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == 0:
        return
    if "no space left on device" in done.stderr:
        root = _podman("info", "--format", "{{.Store.GraphRoot}}").stdout.strip()
        raise EngineError(f"podman has no space left under {root}; free some there and load again")
    raise EngineError(f"podman did not take the image: {_last(done.stderr)}")


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no message"
