"""An image as everything else sees it, and the one way that leads there: by its hashes."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from images.inspect import documents, limits, tar
from images.inspect.errors import InspectError
from images.inspect.stream import Layer
from images.manifest import model

Kind = Literal["record", "layout", "tar", "registry", "engine"]
Opener = Callable[[int], Iterator[bytes]]

_VERSION = re.compile(r"moet\.manifest\.v([1-9][0-9]{0,8})")
_READ = int(model.SCHEMA.rpartition("v")[2])


@dataclass(frozen=True)
class LayerView:
    """A layer, lowest first. `digest` and `size` (bytes) are of the blob as stored; None where nobody knows them."""

    name: str
    comment: str
    diff_id: str
    digest: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class View:
    """An image that is Moet's.

    Attributes:
        source: where it was found, in words.
        digest: of the OCI manifest; None where there is none (a saved tar, an engine that did not pull it).
        image_id: of the OCI configuration; an engine's own id for what an engine holds.
        config: the OCI configuration; of an engine, the parts that it tells.
        oci_manifest: None where there is none.
        manifest: Moet's.
        layers: lowest first.
        kind: of source.
        checked: what was held against a hash.
        trusted: what was taken on the word of an engine.
        notes: what the reader should know, a line each.
        open_layer: the bytes of a layer's blob by its index; None where they cannot be had.
    """

    source: str
    digest: str | None
    image_id: str
    config: dict[str, Any]
    oci_manifest: dict[str, Any] | None
    manifest: model.Manifest
    layers: tuple[LayerView, ...]
    kind: Kind = "record"
    checked: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    open_layer: Opener | None = field(default=None, compare=False, repr=False)

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels."""
        return dict((self.config.get("config") or {}).get("Labels") or {})

    @property
    def released(self) -> bool:
        """Whether the image says that it is a release: it states the commit that it was built from."""
        return self.manifest.commit is not None


@dataclass(frozen=True)
class Found:
    """An image's documents as bytes, wherever they were, before anything is believed."""

    kind: Kind
    source: str
    config: bytes
    image: bytes | None
    open_layer: Opener


def view_of(found: Found) -> View:
    """Checks an image from its digest down to Moet's manifest, of which it reads the one layer.

    Raises InspectError: corrupt, hostile, none of Moet's, or newer than this program.
    """
    where = found.source
    image_id = documents.digest(found.config)
    named = f"{where}: configuration"
    settings = documents.config(documents.json_object(found.config, named), named)
    checked = ["configuration"]
    blobs: tuple[documents.Blob | None, ...] = (None,) * len(settings.diff_ids)
    image = None
    if found.image is not None:
        image = documents.image(found.image, f"{where}: manifest")
        checked = ["manifest digest", "configuration digest"]
        if (image.config.digest, image.config.size) != (image_id, len(found.config)):
            raise InspectError(f"{where}: the manifest states configuration {image.config.digest}, found {image_id}")
        blobs = image.layers
    if len(blobs) != len(settings.diff_ids):
        raise InspectError(
            f"{where}: the manifest has {len(blobs)} layers, the configuration {len(settings.diff_ids)}: it is corrupt"
        )
    layers = tuple(
        LayerView(name, comment, diff_id, blob.digest if blob else None, blob.size if blob else None)
        for (name, comment), diff_id, blob in zip(settings.names, settings.diff_ids, blobs, strict=True)
    )
    anchor = anchor_of(settings, where)
    data, index = _search(found, layers)
    manifest = manifest_of(data, anchor, settings, where)
    checked += [f"the manifest's layer ({'digest, ' if image else ''}diff_id)", "manifest.json"]
    return View(
        source=where,
        digest=documents.digest(found.image) if found.image is not None else None,
        image_id=image_id,
        config=settings.document,
        oci_manifest=image.document if image else None,
        manifest=manifest,
        layers=layers,
        kind=found.kind,
        checked=tuple(checked),
        notes=notes_on(layers, index),
        open_layer=found.open_layer,
    )


def anchor_of(settings: documents.Config, where: str) -> str:
    """The SHA-256 of Moet's manifest that a configuration states. Raises InspectError where it states none."""
    anchor = settings.environment.get(model.ANCHOR)
    if anchor is None:
        raise InspectError(f"{where}: is no image of Moet's (its environment has no {model.ANCHOR})")
    if not re.fullmatch(r"[0-9a-f]{64}", anchor):
        raise InspectError(f"{where}: {model.ANCHOR} is {anchor!r}; expected 64 hexadecimal digits: it is corrupt")
    return anchor


def manifest_of(data: bytes, anchor: str, settings: documents.Config, where: str) -> model.Manifest:
    """Moet's manifest out of its bytes, held against the anchor and the labels. Raises InspectError."""
    found = hashlib.sha256(data).hexdigest()
    if found != anchor:
        raise InspectError(
            f"{where}: {model.PATH} has sha256 {found}, the configuration states {anchor}: it was altered or is corrupt"
        )
    document = documents.json_object(data, f"{where}: {model.PATH}")
    schema = document.get("schema")
    version = _VERSION.fullmatch(schema) if isinstance(schema, str) else None
    if version and int(version[1]) > _READ:
        raise InspectError(
            f"{where}: its manifest is {schema}, this moet reads up to {model.SCHEMA}: this moet is older than the"
            " image: take a newer one"
        )
    try:
        manifest = model.decode(model.Manifest, document)
    except model.DataError as error:
        raise InspectError(f"{where}: {model.PATH}: {error}: no manifest that this moet knows") from None
    for label, said in (("tag", manifest.tag), ("line", manifest.line), ("manifest.sha256", anchor)):
        stated = settings.labels.get(f"org.moet.{label}", said)
        if stated != said:
            raise InspectError(f"{where}: label org.moet.{label} is {stated!r}, the manifest says {said!r}: altered")
    return manifest


def notes_on(layers: tuple[LayerView, ...], index: int) -> tuple[str, ...]:
    """Notes on what lies above the layer of the manifest, `index`."""
    above = len(layers) - 1 - index
    if not above:
        return ()
    return (f"{above} layer{'s' * (above > 1)} above the manifest's: somebody else's, which it does not describe",)


def _search(found: Found, layers: tuple[LayerView, ...]) -> tuple[bytes, int]:
    left = limits.SEARCH
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        where = f"{found.source}: layer {index + 1} of {len(layers)} ({layer.name})"
        stream = Layer(found.open_layer(index), where, left)
        data = _member(stream, where)
        stream.check(layer.digest, layer.size, layer.diff_id)
        if data is not None:
            return data, index
        left -= stream.bare_size
    raise InspectError(f"{found.source}: no layer has {model.PATH}: it is no whole image of Moet's")


def _member(stream: Layer, where: str) -> bytes | None:
    data = None
    for entry, content in tar.walk(stream.reader, where):
        if entry.path != model.PATH[1:]:
            continue
        if entry.kind != "file":
            raise InspectError(f"{where}: {model.PATH} is a {entry.kind}; a file was expected: hostile or corrupt")
        if entry.size > limits.MANIFEST:
            raise InspectError(f"{where}: {model.PATH} has {entry.size:,} bytes; at most {limits.MANIFEST:,} are read")
        data = b"".join(content.chunks())
    return data

