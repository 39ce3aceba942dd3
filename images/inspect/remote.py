"""An image in a registry."""

from collections.abc import Iterator
from pathlib import Path

from images.inspect import documents, limits
from images.inspect.errors import InspectError
from images.inspect.view import Found
from images.registry.client import Registry
from images.registry.descriptor import Descriptor


def address(text: str) -> tuple[str, str, str] | None:
    """Registry, name and tag or digest of `REGISTRY/NAME:TAG` or `REGISTRY/NAME@DIGEST`; None: it is no such text."""
    registry, slash, rest = text.partition("/")
    if not slash or not (any(mark in registry for mark in ".:[") or registry == "localhost"):
        return None
    if registry in (".", "..") or not rest:
        return None
    name, at, digest = rest.partition("@")
    head, colon, tag = name.rpartition(":")
    if at:
        # Both may be given; the digest says more.
        return registry, head if colon else name, digest
    return (registry, head, tag) if colon else (registry, name, "")


def find(text: str, plain_http: bool, authfile: Path | None) -> Found:
    """The image at a registry's reference. Raises InspectError or RegistryError."""
    split = address(text)
    if split is None:
        raise InspectError(f"{text!r} names no registry; write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:...")
    host, name, reference = split
    if not reference:
        raise InspectError(f"{text!r} has no tag; write {text}:TAG or {text}@sha256:...")
    source = f"registry {text}"
    registry = Registry(host, plain_http, authfile)
    descriptor, data = registry.manifest(name, reference)
    if descriptor.media_type in documents.INDEXES:
        where = f"{source}: index"
        chosen = documents.choose(documents.entries(documents.json_object(data, where), where), None, where)
        descriptor, data = registry.manifest(name, chosen.digest)
        if descriptor.media_type in documents.INDEXES:
            raise InspectError(f"{where}: holds an index of indexes; name an image by its digest")
    if "artifactType" in documents.json_object(data, source) or descriptor.media_type not in documents.IMAGES:
        raise InspectError(f"{source}: is no image but {descriptor.artifact_type or descriptor.media_type}")
    image = documents.image(data, f"{source}: manifest")
    config = b"".join(registry.blob(name, _descriptor(_small(image.config, source))))

    def open_layer(number: int) -> Iterator[bytes]:
        return registry.blob(name, _descriptor(image.layers[number]))

    return Found("registry", source, config, data, open_layer)


def _small(blob: documents.Blob, source: str) -> documents.Blob:
    if blob.size > limits.DOCUMENT:
        raise InspectError(f"{source}: its configuration has {blob.size:,} bytes; at most {limits.DOCUMENT:,} are read")
    return blob


def _descriptor(blob: documents.Blob) -> Descriptor:
    return Descriptor(blob.media_type, blob.digest, blob.size)
