"""An image that an engine holds: it tells its parts, but not the bytes that its id is the hash of."""

import re
from typing import Any

from images.engine.interface import Engine, EngineImage
from images.inspect import documents, records
from images.inspect.errors import InspectError
from images.inspect.view import LayerView, View, anchor_of, manifest_of, notes_on
from images.manifest import model
from releases.known import Known

_ID = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")


def find(engine: Engine, name: str, known: Known | None) -> View | None:
    """The image that the engine has under `name` (NAME:TAG, a digest, an id), None where it has none.

    Moet's manifest is held against the hash that the configuration states, and where the image is a known
    release's, everything the engine tells against the release's record. Raises InspectError or EngineError.
    """
    image = engine.find(name)
    if image is None:
        return None
    source = f"{engine.name}, {image.image_id}" + (f" ({name})" if not _ID.fullmatch(name) else "")
    document: dict[str, Any] = {
        "config": engine.config(image.image_id),
        "rootfs": {"diff_ids": engine.layers(image.image_id)},
    }
    settings = documents.config(document, source)
    anchor = anchor_of(settings, source)
    data = engine.read_file(image.image_id, model.PATH)
    if data is None:
        raise InspectError(f"{source}: has no {model.PATH}: it is no whole image of Moet's")
    manifest = manifest_of(data, anchor, settings, source)
    release = records.by_identifier(known, {image.image_id, *image.manifest_digests})
    layers = _layers(engine, image, settings)
    digests = sorted(image.manifest_digests)
    digest = digests[0] if len(digests) == 1 else None
    checked, trusted = ["manifest.json"], ["the image's id", "its configuration", "its layers' diff_ids"]
    if release:
        tag, record = release
        _compare(source, str(tag), record, settings)
        layers, digest = record.layers, record.digest
        checked.append(f"what the engine tells against the record of {tag}")
    return View(
        source=source,
        digest=digest,
        image_id=image.image_id,
        config=document,
        oci_manifest=release[1].oci_manifest if release else None,
        manifest=manifest,
        layers=layers,
        kind="engine",
        checked=tuple(checked),
        trusted=tuple(trusted),
        notes=notes_on(layers, _manifest_layer(layers)),
    )


def _layers(engine: Engine, image: EngineImage, settings: documents.Config) -> tuple[LayerView, ...]:
    history = [entry for entry in engine.history(image.image_id) if entry[0].startswith("moet ")]
    # Layers of somebody else's are above Moet's.
    made = history[: len(settings.diff_ids)]
    return tuple(
        LayerView(*documents.name_layer(number, *(made[number - 1] if number <= len(made) else ("", ""))), diff_id)
        for number, diff_id in enumerate(settings.diff_ids, 1)
    )


def _manifest_layer(layers: tuple[LayerView, ...]) -> int:
    ours = [index for index, layer in enumerate(layers) if layer.name.startswith("manifest")]
    return ours[-1] if ours else len(layers) - 1


def _compare(source: str, tag: str, record: View, settings: documents.Config) -> None:
    stated = documents.config(record.config, f"record of {tag}")
    for what, found, expected in (
        ("layers", settings.diff_ids, stated.diff_ids),
        ("labels", dict(settings.labels), dict(stated.labels)),
        ("environment", dict(settings.environment), dict(stated.environment)),
    ):
        if found != expected:
            raise InspectError(f"{source}: has the id of {tag}, but other {what} than its record: the engine lies")
