"""Reading one image out of an OCI image layout directory."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from images.engine.errors import EngineError

REF_NAME = "org.opencontainers.image.ref.name"
# What OCI's annotation leaves out, the repository, containerd's has.
_FULL_NAME = "io.containerd.image.name"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class Blob:
    """One file of the layout: `sha256:<hex>`, its size in bytes and where it lies."""

    digest: str
    size: int
    path: Path


@dataclass(frozen=True)
class Layer:
    """A layer: the blob as it is stored and `sha256:<hex>` of the tar inside it."""

    blob: Blob
    diff_id: str


@dataclass(frozen=True)
class Image:
    """An image of a layout.

    `ref_name` is the layout's own name for it, `full_name` its NAME:TAG there; each None where it gives none.
    """

    directory: Path
    ref_name: str | None
    full_name: str | None
    manifest: Blob
    config: Blob
    layers: tuple[Layer, ...]

    @property
    def source(self) -> str:
        """The image in the notation of skopeo and podman."""
        return f"oci:{self.directory}" + (f":{self.ref_name}" if self.ref_name else "")


def read(directory: Path, name: str | None = None) -> Image:
    """Read the image called `name`, or the only one, and check that every blob is there with its size.

    The small blobs (manifest, config) are hashed; the layers' bytes are left to whoever receives them.

    Raises:
        EngineError: not a layout, no such image, or a blob that is missing, short or altered.
    """
    directory = directory.resolve()
    if ":" in str(directory):
        raise EngineError(f"{directory}: engines read ':' as the end of a layout's path; move it to a path without one")
    if not (directory / "oci-layout").is_file():
        missing = f"{directory} is not an OCI image layout (no file oci-layout)"
        raise EngineError(f"{missing}; build one with: bazel build //images:LINE")
    entry = _choose(directory, _json(directory / "index.json"), name)
    manifest = _blob(directory, entry, hashed=True)
    document = _json(manifest.path)
    config = _blob(directory, document["config"], hashed=True)
    diff_ids = _json(config.path)["rootfs"]["diff_ids"]
    blobs = [_blob(directory, layer, hashed=False) for layer in document["layers"]]
    if len(diff_ids) != len(blobs):
        counts = f"the manifest has {len(blobs)} layers, the config {len(diff_ids)}"
        raise EngineError(f"{directory}: {counts}; build the layout again")
    layers = tuple(Layer(blob, diff_id) for blob, diff_id in zip(blobs, diff_ids, strict=True))
    annotations = entry.get("annotations", {})
    return Image(directory, annotations.get(REF_NAME), annotations.get(_FULL_NAME), manifest, config, layers)


def _choose(directory: Path, index: Any, name: str | None) -> dict[str, Any]:
    images: list[dict[str, Any]] = [
        entry for entry in index["manifests"] if entry["mediaType"] == _MANIFEST and "artifactType" not in entry
    ]
    if any(entry["mediaType"] == _INDEX for entry in index["manifests"]):
        raise EngineError(f"{directory}: the layout nests an index; a layout with plain image manifests was expected")
    named = [entry for entry in images if name in _names(entry)]
    chosen = named or images
    if len(chosen) != 1:
        names = ", ".join(sorted(max(_names(entry), key=len, default="(no name)") for entry in images)) or "none"
        raise EngineError(f"{directory}: cannot tell which image is meant by {name!r}; the layout has: {names}")
    return chosen[0]


def _names(entry: dict[str, Any]) -> set[str]:
    annotations = entry.get("annotations", {})
    return {annotations[key] for key in (_FULL_NAME, REF_NAME) if key in annotations}


def _blob(directory: Path, descriptor: dict[str, Any], hashed: bool) -> Blob:
    digest: str = descriptor["digest"]
    size: int = descriptor["size"]
    path = directory / "blobs" / digest.replace(":", "/", 1)
    found = path.stat().st_size if path.is_file() else None
    if found != size:
        state = "is missing" if found is None else f"has {found} bytes, {size} expected"
        raise EngineError(f"{directory}: blob {digest} {state}; build the layout again")
    if hashed and f"sha256:{sha256(path.read_bytes()).hexdigest()}" != digest:
        raise EngineError(f"{directory}: blob {digest} does not have the bytes its name says; build the layout again")
    return Blob(digest, size, path)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read as JSON ({error}); build the layout again") from error
