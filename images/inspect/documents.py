"""OCI's documents, read with suspicion: every value has the type that is expected, or one line says which has not."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from images.inspect import limits
from images.inspect.errors import InspectError
from images.manifest import model

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
# The repository too, which OCI's own annotation leaves out.
FULL_NAME = "io.containerd.image.name"
REF_NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class Blob:
    """A descriptor: what is stored elsewhere. `size` in bytes; `names` are the annotations that name an image."""

    media_type: str
    digest: str
    size: int
    names: frozenset[str] = frozenset()
    platform: str = ""


@dataclass(frozen=True)
class Image:
    """An OCI image manifest."""

    document: dict[str, Any]
    config: Blob
    layers: tuple[Blob, ...]


@dataclass(frozen=True)
class Config:
    """An OCI image configuration. `names` are (name, comment) of each layer, as its history has them."""

    document: dict[str, Any]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    diff_ids: tuple[str, ...]
    names: tuple[tuple[str, str], ...]


def digest(data: bytes) -> str:
    """The digest of `data`."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def json_object(data: bytes, where: str) -> dict[str, Any]:
    """A JSON object from bytes. Raises InspectError, also where a text of it is no Unicode (a lone surrogate)."""
    try:
        value = model.loads(data)
        json.dumps(value, ensure_ascii=False).encode()
    except (model.DataError, ValueError) as error:
        raise InspectError(f"{where}: {error}: it is corrupt, or no image") from None
    if not isinstance(value, dict):
        raise InspectError(f"{where}: is no JSON object: it is corrupt, or no image")
    return value


def entries(document: dict[str, Any], where: str) -> list[Blob]:
    """The images that an index lists; signatures and other artifacts left out. Raises InspectError."""
    found = []
    for entry in _list(document, "manifests", where):
        blob = _blob(entry, where)
        unknown = blob.platform.startswith("unknown/")
        if blob.media_type in (*INDEXES, *IMAGES) and "artifactType" not in entry and not unknown:
            found.append(blob)
    return found


def choose(found: list[Blob], name: str | None, where: str) -> Blob:
    """The image that is meant: the one called `name` (a name or digest), or the only one. Raises InspectError."""
    if name is not None:
        named = [blob for blob in found if name in blob.names or name == blob.digest]
        if len(named) == 1:
            return named[0]
        raise InspectError(f"{where}: has {len(named) or 'no'} images called {name!r}; it has {_listed(found)}")
    if len(found) == 1:
        return found[0]
    if not found:
        raise InspectError(f"{where}: has no image")
    raise InspectError(
        f"{where}: has {len(found)} images, {_listed(found)}: say which one is meant by its digest"
        " (NAME@sha256:... in a registry, --ref sha256:... elsewhere)"
    )


def image(data: bytes, where: str) -> Image:
    """An image manifest from bytes. Raises InspectError."""
    document = json_object(data, where)
    layers = tuple(_blob(entry, where) for entry in _list(document, "layers", where))
    if not 0 < len(layers) <= limits.LAYERS:
        raise InspectError(f"{where}: has {len(layers)} layers; 1 to {limits.LAYERS} were expected")
    return Image(document, _blob(document.get("config"), where), layers)


def config(document: dict[str, Any], where: str) -> Config:
    """A configuration's document, looked through. Raises InspectError."""
    rootfs, run = document.get("rootfs"), document.get("config")
    if not isinstance(rootfs, dict) or not isinstance(run, dict):
        raise InspectError(f"{where}: has no 'rootfs' and 'config': it is no image's configuration")
    diff_ids = [entry for entry in _list(rootfs, "diff_ids", where) if isinstance(entry, str)]
    if not all(DIGEST.fullmatch(entry) for entry in diff_ids) or not 0 < len(diff_ids) <= limits.LAYERS:
        raise InspectError(f"{where}: its diff_ids are no list of 1 to {limits.LAYERS} sha256 digests")
    labels = run.get("Labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InspectError(f"{where}: its labels are not all text")
    pairs = [entry.partition("=") for entry in _list(run, "Env", where) if isinstance(entry, str)]
    environment = {name: value for name, _, value in pairs}
    return Config(document, environment, labels, tuple(diff_ids), _names(document, len(diff_ids), where))


def _names(document: dict[str, Any], count: int, where: str) -> tuple[tuple[str, str], ...]:
    history = [entry for entry in _list(document, "history", where) if isinstance(entry, dict)]
    full = [entry for entry in history if not entry.get("empty_layer")]
    if len(full) != count:
        return tuple((f"layer {number}", "") for number in range(1, count + 1))
    made = [(str(entry.get("created_by") or ""), str(entry.get("comment") or "")) for entry in full]
    return tuple(name_layer(number, by, comment) for number, (by, comment) in enumerate(made, 1))


def name_layer(number: int, created_by: str, comment: str) -> tuple[str, str]:
    """Name and comment of a layer by its history; one that is not Moet's is called by its number."""
    if created_by.startswith("moet "):
        return created_by.removeprefix("moet "), comment
    return f"layer {number}", created_by or comment


def _blob(value: Any, where: str) -> Blob:
    if not isinstance(value, dict):
        raise InspectError(f"{where}: has something else where OCI puts a descriptor: it is corrupt, or no image")
    stated, size, kind = value.get("digest"), value.get("size"), value.get("mediaType")
    if not isinstance(stated, str) or not DIGEST.fullmatch(stated):
        raise InspectError(f"{where}: has the digest {stated!r}; expected sha256: and 64 hexadecimal digits")
    if type(size) is not int or size < 0 or not isinstance(kind, str):
        raise InspectError(f"{where}: {stated} has no size or no mediaType: it is corrupt")
    annotations = value.get("annotations")
    annotations = annotations if isinstance(annotations, dict) else {}
    names = {annotations[key] for key in (FULL_NAME, REF_NAME) if isinstance(annotations.get(key), str)}
    platform = value.get("platform")
    shown = f"{platform.get('os')}/{platform.get('architecture')}" if isinstance(platform, dict) else ""
    return Blob(kind, stated, size, frozenset(names), shown)


def _list(document: dict[str, Any], key: str, where: str) -> list[Any]:
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InspectError(f"{where}: its {key!r} is no list: it is corrupt, or no image")
    return value


def _listed(found: list[Blob]) -> str:
    shown = [
        " ".join(part for part in (max(blob.names, key=len, default=""), blob.platform, blob.digest) if part)
        for blob in found[:8]
    ]
    return ", ".join([*shown, f"and {len(found) - 8} more"] if len(found) > 8 else shown) or "none"
