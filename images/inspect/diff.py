"""How two images differ, for programs and for people."""

from typing import Any

from images.inspect import transfer
from images.inspect.contents import FileDifference, Item
from images.inspect.difference import Difference
from images.inspect.explain import identity
from images.inspect.text import brief, megabytes, plain
from images.inspect.view import View
from images.inspect.wording import show as show_difference
from tools.cli.output import Output

SCHEMA = "moet.image-diff.v1"


def same(before: View, after: View, difference: Difference) -> bool:
    """Whether nothing differs but tag and commit, which the layer of the manifest and the configuration hold."""
    manifest = {layer.diff_id for view in (before, after) for layer in view.layers if layer.name.startswith("manifest")}
    rest = [[layer.diff_id for layer in view.layers if layer.diff_id not in manifest] for view in (before, after)]
    return not difference and rest[0] == rest[1]


def document(before: View, after: View, difference: Difference, files: FileDifference | None) -> dict[str, Any]:
    """The difference as one JSON document."""
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "from": identity(before),
        "to": identity(after),
        "same_image": before.image_id == after.image_id or (before.digest or "A") == (after.digest or "B"),
        "same_content": same(before, after, difference),
        **difference.document(),
        "layers": [change.document() for change in transfer.layers(before, after)],
        "transfer": {
            "pull": transfer.pull(before, after).document(),
            "docker_load": transfer.load(before, after).document(),
        },
    }
    if files is not None:
        made["contents"] = files.document()
    return made


def show(out: Output, before: View, after: View, difference: Difference, files: FileDifference | None) -> None:
    """Prints the difference."""
    rows = [
        [name, plain(str(one or "none")), plain(str(other or "none"))]
        for name, one, other in (
            ("image", before.manifest.tag, after.manifest.tag),
            ("found", before.source, after.source),
            ("commit", before.manifest.commit, after.manifest.commit),
            ("digest", before.digest, after.digest),
            ("image id", before.image_id, after.image_id),
        )
    ]
    out.table(["", "A", "B"], rows)
    show_difference(out, difference, "A", "B")
    changes = transfer.layers(before, after)
    unlike = [change for change in changes if change.state != "same"]
    out.line()
    if unlike:
        out.table(
            ["", "layer", ">A", ">B", "digest of B"],
            [_layer(change) for change in unlike],
            f"layers: {len(changes) - len(unlike)} the same, {len(unlike)} not",
        )
    else:
        out.line(f"layers: all {len(changes)} the same")
    if files is not None:
        _files(out, files)
    pull, load = transfer.pull(before, after), transfer.load(before, after)
    out.line("an engine that has A gets B with")
    out.line(f"  {megabytes(pull.size):>12} in {pull.layers} layers, pulled from a registry")
    out.line(f"  {megabytes(load.size):>12} in {load.layers} layers, loaded into Docker's classic store")


def _layer(change: transfer.LayerChange) -> list[str]:
    sizes = [megabytes(layer.size) if layer else "" for layer in (change.before, change.after)]
    after = change.after
    return [change.state, plain(change.name), *sizes, (after.digest or after.diff_id) if after else ""]


def _files(out: Output, files: FileDifference) -> None:
    rows = [["added", plain(path), "", _item(item)] for path, item in files.added.items()]
    rows += [["removed", plain(path), _item(item), ""] for path, item in files.removed.items()]
    rows += [["changed", plain(path), _item(old), _item(new)] for path, (old, new) in files.changed.items()]
    counts = f"{len(files.added)} added, {len(files.removed)} removed, {len(files.changed)} changed"
    if rows:
        out.table(["", "file", "A", "B"], rows, f"files of layers that are not the same: {counts}")
    else:
        out.line("files of layers that are not the same: none differs")


def _item(item: Item) -> str:
    if item.kind != "file":
        return brief(f"{item.kind} to {item.content}", 60)
    return f"{megabytes(item.size)} {item.content[:12]}"
