"""What is published of one release, checked against its entry, its record and the commits that are here."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from releases.attestations import statement
from releases.attestations.statement import Statement
from releases.changelog import grammar
from releases.changelog.entry import Entry
from releases.known import CHANGELOG, RECORDS, Known
from releases.record import Record
from releases.tag import Tag
from releases.tree.git import Git
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Release:
    """One release. `statements` are those that are signed: predicate type to statement."""

    entry: Entry
    record: Record
    statements: Mapping[str, Statement]

    @classmethod
    def read(cls, known: Known, git: Git, tag: Tag) -> Self:
        """Reads a release and checks it.

        Raises UserError: entry and record are not one image's, are not committed, or the commit is not here.
        """
        entry, record = known.entry(tag), known.record(tag)
        manifest = record.moet
        stated = {
            "image id": (record.image_id, entry.image_id),
            "tag": (manifest.tag, str(tag)),
            "commit": (manifest.commit or entry.commit, entry.commit),
        }
        for what, (found, wanted) in stated.items():
            if found != wanted:
                raise UserError(f"{tag}: its record has the {what} {found}, {CHANGELOG} says {wanted}: one was altered")
        _committed(git, entry, record)
        _here(git, entry)
        return cls(entry, record, statement.of_release(entry, record))


def _committed(git: Git, entry: Entry, record: Record) -> None:
    text = git.show("HEAD", CHANGELOG)
    entries = grammar.parse(text.decode()).entries if text else ()
    if _facts(entry) not in [_facts(one) for one in entries]:
        raise UserError(f"{entry.tag}: its entry in {CHANGELOG} is not committed as it is here: commit it first")
    folder = f"{RECORDS}/{entry.tag.line}/{entry.tag.name}"
    for name, data in record.files().items():
        if git.show("HEAD", f"{folder}/{name}") != data:
            raise UserError(f"{entry.tag}: {folder}/{name} is not committed as it is here: commit it first")


def _facts(entry: Entry) -> Entry:
    # Lines move whenever something is written above.
    return dataclasses.replace(entry, sections={}, evidence=(), line=0)


def _here(git: Git, entry: Entry) -> None:
    if git.resolve(entry.commit) != entry.commit:
        how = "git fetch --unshallow" if git.is_shallow() else "git fetch --all"
        raise UserError(f"{entry.tag}: its commit {entry.commit} is not in this clone: {how}")
    if not git.is_ancestor(entry.commit, "HEAD"):
        raise UserError(f"{entry.tag}: its commit {entry.commit} is not in the history of HEAD: check the branch out")
