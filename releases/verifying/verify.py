"""Verifying a release by building it again: a clean folder, an empty output base, and one digest to compare."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from images.inspect import records
from images.inspect.errors import InspectError
from images.inspect.source import open_image
from images.inspect.view import View
from releases.changelog.entry import Entry
from releases.known import Known
from releases.tag import Tag
from releases.tree import build
from releases.tree.git import Git
from releases.verifying import verify_files
from releases.verifying.verify_files import FileDifference
from tools.cli.errors import UserError

Doing = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class LayerDifference:
    """The first layer that differs: its number (from 1, lowest first), name and diff_ids (None: there is none)."""

    number: int
    name: str
    released: str | None
    rebuilt: str | None


@dataclass(frozen=True)
class Verdict:
    """What came out. `digest` is the released one; `config` are keys of the configuration that differ.

    `file` is the first that differs in `layer`, where the released layer's bytes could be had.
    """

    tag: Tag
    commit: str
    digest: str
    rebuilt: str
    layer: LayerDifference | None = None
    config: tuple[str, ...] = ()
    file: FileDifference | None = None

    @property
    def same(self) -> bool:
        """Whether both are one image."""
        return self.digest == self.rebuilt

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "tag": str(self.tag),
            "commit": self.commit,
            "digest": self.digest,
            "rebuilt": self.rebuilt,
            "same": self.same,
            "layer": vars(self.layer) if self.layer else None,
            "config": list(self.config),
            "file": self.file.document() if self.file else None,
        }


def verify(known: Known, tag: Tag, released: View | None, doing: Doing) -> Verdict:
    """Builds the commit of `tag` again and compares.

    `released` is the image as it was released, with its layers; without it, the record says which layer differs, and
    not which file. Raises UserError where the commit is not here, or cannot be built.
    """
    git = Git(known.need_tree("building a release again"))
    entry = known.entry(tag)
    released = released or records.by_tag(known, tag)
    if git.resolve(entry.commit) is None:
        why = "git fetch --unshallow" if git.is_shallow() else "git fetch it"
        raise UserError(f"{tag}: its commit {entry.commit} is not in this clone: {why}")
    with build.elsewhere(git, entry.commit) as workspace:
        with doing(f"building {tag} of {entry.commit[:12]} in a clean folder"):
            built = workspace.built(tag)
        return _compare(entry, released, open_image(f"layout://{built}", None), doing)


def against(known: Known, tag: Tag, view: View) -> View:
    """`view`, if it is the image of the release `tag`. Raises UserError where it is another."""
    entry = known.entry(tag)
    if entry.digest == view.digest or (view.digest is None and entry.image_id == view.image_id):
        return view
    found = view.digest or view.image_id
    raise UserError(f"{view.source}: is {found}, not {tag} ({entry.digest}): name the image as it was released")


def _compare(entry: Entry, released: View, rebuilt: View, doing: Doing) -> Verdict:
    assert rebuilt.digest is not None
    if rebuilt.digest == entry.digest:
        return Verdict(entry.tag, entry.commit, entry.digest, rebuilt.digest)
    config = tuple(
        key
        for key in sorted(released.config.keys() | rebuilt.config.keys())
        if key != "rootfs" and released.config.get(key) != rebuilt.config.get(key)
    )
    layer = _layer(released, rebuilt)
    file = None
    if layer and layer.released and layer.rebuilt and released.open_layer is not None:
        with doing(f"comparing layer {layer.number}, {layer.name}"):
            file = verify_files.first(released, rebuilt, layer.number - 1)
    return Verdict(entry.tag, entry.commit, entry.digest, rebuilt.digest, layer, config, file)


def _layer(released: View, rebuilt: View) -> LayerDifference | None:
    for index in range(max(len(released.layers), len(rebuilt.layers))):
        pair = [view.layers[index] if index < len(view.layers) else None for view in (released, rebuilt)]
        one, other = pair
        ids = [layer.diff_id if layer else None for layer in pair]
        digests = [layer.digest if layer else None for layer in pair]
        if ids[0] != ids[1] or (None not in digests and digests[0] != digests[1]):
            named = one or other
            if named is None:
                raise InspectError(f"{released.source}: has no layers")
            return LayerDifference(index + 1, named.name, ids[0], ids[1])
    return None
