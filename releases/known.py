"""The releases that are known here: the tree's, or the copy that the self-contained `moet` carries."""

import os
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Self

from images.manifest import model
from releases.changelog import grammar
from releases.changelog.entry import Changelog, Entry
from releases.record import Record
from releases.tag import Tag
from tools.cli.errors import UserError

CHANGELOG = "CHANGELOG.md"
RECORDS = "releases/records"


@dataclass(frozen=True)
class Known:
    """CHANGELOG and records. `root` is the source tree's folder, None where only the carried copy is known."""

    root: Path | None
    _text: str
    _records: Traversable

    @classmethod
    def find(cls, tree: Path | None = None) -> Self:
        """The releases of `tree`, else of the tree around this folder or BUILD_WORKSPACE_DIRECTORY, else the carried.

        Raises UserError where `tree` is no source tree of Moet's, or nothing is known at all.
        """
        root = _around(tree.resolve()) if tree else _around(Path.cwd())
        if root is None and tree is None and (workspace := os.environ.get("BUILD_WORKSPACE_DIRECTORY")):
            root = _around(Path(workspace))
        if root is not None:
            return cls(root, (root / CHANGELOG).read_text(encoding="utf-8"), root / RECORDS)
        if tree is not None:
            raise UserError(f"{tree}: is not in a source tree of Moet's (no {CHANGELOG} beside {RECORDS})")
        carried = resources.files("releases")
        text = carried.joinpath("carried").joinpath(CHANGELOG)
        if not text.is_file():
            raise UserError("no source tree of Moet's around this folder; go into one or name it with --tree DIR")
        return cls(None, text.read_text(encoding="utf-8"), carried.joinpath("records"))

    @property
    def changelog(self) -> Changelog:
        """The CHANGELOG, read. Raises UserError where its grammar is broken."""
        return grammar.parse(self._text)

    def entry(self, tag: Tag) -> Entry:
        """The entry of a release. Raises UserError, with the tags there are, where there is none."""
        entries = {entry.tag: entry for entry in self.changelog.entries}
        if tag not in entries:
            listed = ", ".join(str(known) for known in entries if known.line == tag.line) or "none of this line"
            raise UserError(f"{tag}: no release in {CHANGELOG}; it has {listed}")
        return entries[tag]

    def record(self, tag: Tag) -> Record:
        """The record of a release, with its digest held against the CHANGELOG.

        Raises UserError where it is missing or another image's.
        """
        entry = self.entry(tag)
        record = Record.read(self._records, tag)
        if record is None:
            place = f"{RECORDS}/{tag.line}/{tag.name}"
            raise UserError(f"{tag}: {place} is missing; moet release cut wrote it: git checkout -- {place}")
        if record.digest != entry.digest:
            raise UserError(f"{tag}: {CHANGELOG} says {entry.digest}, the record is {record.digest}'s: one was altered")
        try:
            _ = record.moet
        except model.DataError as error:
            raise UserError(f"{tag}: manifest.json of its record cannot be read: {error}: take a newer moet") from None
        return record

    def need_tree(self, why: str) -> Path:
        """The tree's folder. Raises UserError, saying `why` it is needed, where there is none."""
        if self.root is None:
            raise UserError(f"{why} needs Moet's source tree: go into one or name it with --tree DIR")
        return self.root


def _around(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / CHANGELOG).is_file() and (folder / "bazelw").is_file() and (folder / "images").is_dir():
            return folder
    return None
