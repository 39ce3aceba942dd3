"""Images that are known by their record: no image is needed."""

from images.inspect import documents
from images.inspect.view import LayerView, View, anchor_of, manifest_of
from releases.known import Known
from releases.record import Record
from releases.tag import Tag
from tools.cli.errors import UserError


def view_of_record(record: Record, source: str = "record") -> View:
    """The image that a record is of. Raises InspectError."""
    image = documents.image(record.image, f"{source}: image.json")
    where = f"{source}: config.json"
    settings = documents.config(documents.json_object(record.config, where), where)
    manifest = manifest_of(record.manifest, anchor_of(settings, source), settings, source)
    layers = tuple(
        LayerView(name, comment, diff_id, blob.digest, blob.size)
        for (name, comment), diff_id, blob in zip(settings.names, settings.diff_ids, image.layers, strict=True)
    )
    return View(
        source=source,
        digest=record.digest,
        image_id=record.image_id,
        config=settings.document,
        oci_manifest=image.document,
        manifest=manifest,
        layers=layers,
        kind="record",
        checked=("manifest digest", "configuration digest", "manifest.json"),
    )


def by_tag(known: Known, tag: Tag) -> View:
    """The release `tag`. Raises UserError where there is none."""
    return view_of_record(known.record(tag), f"record of {tag}")


def by_identifier(known: Known | None, identifiers: set[str]) -> tuple[Tag, View] | None:
    """The release with one of these digests (of its manifest or its configuration), None where none has it.

    A record that is missing or broken counts as none.
    """
    if known is None:
        return None
    try:
        entries = known.changelog.entries
    except UserError:
        return None
    for entry in entries:
        if identifiers & {entry.digest, entry.image_id}:
            try:
                return entry.tag, by_tag(known, entry.tag)
            except UserError:
                return None
    return None
