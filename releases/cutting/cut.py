"""Cutting a release: its image is built, and CHANGELOG.md, its record and the line's next number are written."""

import datetime
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from images.manifest import model
from releases.changelog import grammar
from releases.changelog.entry import Changelog, Entry
from releases.changelog.problem import CHANGELOG
from releases.cutting import draft, journal, layout_record, lineage
from releases.known import RECORDS
from releases.record import Record
from releases.tag import Tag
from releases.tree import build, line_data
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.files import lock

Doing = Callable[[str], AbstractContextManager[None]]
_WAIT_SECONDS = 600
_LISTED = 8


@dataclass(frozen=True)
class Cut:
    """A release that was cut: paths (from the root) that were written, and the TODOs left in its entry.

    `resumed` is whether an interrupted cut was finished.
    """

    entry: Entry
    written: tuple[str, ...]
    todo: tuple[str, ...]
    resumed: bool


def lock_file(git: Git) -> Path:
    """The file that a cut holds the lock on."""
    return git.folder() / "moet" / "cut.lock"


def journal_file(git: Git) -> Path:
    """The journal of an unfinished cut."""
    return git.folder() / "moet" / "cut.json"


def cut(root: Path, line: str, *, base: bool, doing: Doing, note: Callable[[str], None]) -> Cut:
    """Cuts the next release of `line`, or with `base` its r0, in the tree `root`.

    A cut that was interrupted is finished first; where it was of this very release, that is all. Another cut that is
    going on is waited for. `doing` shows what goes on.

    Raises UserError, with nothing written, where the tree has changes, the tag is taken, or the build fails.
    """
    git = Git(root)
    with lock.exclusive(lock_file(git), _WAIT_SECONDS, note):
        resumed = _resume(git, line, base, note)
        if resumed:
            return resumed
        commit = _clean_commit(git)
        data = line_data.read(reader(root), line)
        tag = data.tag(0 if base else None)
        changelog = _free(git, tag)
        with doing(f"building {tag} of {commit[:12]}"):
            record = layout_record.read(build.built(root, tag))
        _expect(record, tag, commit)
        if _clean_commit(git) != commit:
            raise UserError(f"{root}: another commit was checked out while {tag} was built; run this again")
        entry = _draft(root, changelog, tag, record, base)
        files = _files(root, entry, record, None if base else data.release + 1)
        facts = {"tag": str(tag), "line": line, "base": str(base), "commit": commit}
        journal.begin(journal_file(git), journal.plan(root, f"the cut of {tag}", facts, files))
        journal.finish(journal_file(git), root)
        return _result(entry, tuple(files), resumed=False)


def _resume(git: Git, line: str, base: bool, note: Callable[[str], None]) -> Cut | None:
    made = journal.pending(journal_file(git))
    if made is None:
        return None
    if not git.is_ancestor(made.facts["commit"], "HEAD"):
        raise UserError(
            f"{made.about} was begun on {made.facts['commit'][:12]} and not ended: go back to that commit and run this"
            f" again to finish it, or give it up: remove {journal_file(git)}"
        )
    journal.finish(journal_file(git), git.root)
    tag = Tag.parse(made.facts["tag"])
    note(f"finished {made.about}, which was interrupted")
    if (made.facts["line"], made.facts["base"]) != (line, str(base)):
        return None
    entries = grammar.parse((git.root / CHANGELOG).read_text(encoding="utf-8")).entries
    entry = next(entry for entry in entries if entry.tag == tag)
    return _result(entry, tuple(made.files), resumed=True)


def _clean_commit(git: Git) -> str:
    commit = git.head()
    if git.branch() is None:
        raise UserError(f"{git.root}: {commit[:12]} is checked out without a branch; git switch to the one to release")
    changed = git.dirty()
    if changed:
        more = f" and {len(changed) - _LISTED} more" if len(changed) > _LISTED else ""
        listed = ", ".join(changed[:_LISTED])
        raise UserError(f"{git.root}: has changes, a release is of a commit: commit or remove {listed}{more}")
    return commit


def _free(git: Git, tag: Tag) -> Changelog:
    changelog = grammar.parse((git.root / CHANGELOG).read_text(encoding="utf-8"))
    taken = f"tags are never moved: set release = {tag.number + 1} in {line_data.path(tag.line)}" if tag.number else ""
    why = f"{tag}: is released already{'; ' if taken else ''}{taken}"
    for entry in changelog.entries:
        if entry.tag == tag:
            raise UserError(f"{why} ({CHANGELOG}:{entry.line})")
    if (git.root / RECORDS / tag.line / tag.name).exists():
        raise UserError(f"{why} ({RECORDS}/{tag.line}/{tag.name} exists)")
    if git.tag_commit(tag.git):
        raise UserError(f"{why} (git tag {tag.git} exists)")
    return changelog


def _expect(record: Record, tag: Tag, commit: str) -> None:
    manifest = _manifest(record, tag)
    if (manifest.tag, manifest.commit) != (str(tag), commit):
        found = f"{manifest.tag} of {manifest.commit or 'no commit'}"
        raise UserError(f"{build.target(tag)}: built {found}, {tag} of {commit} was expected; does .bazelrc stamp it?")


def _manifest(record: Record, tag: Tag) -> model.Manifest:
    try:
        return record.moet
    except model.DataError as error:
        raise UserError(f"{tag}: its manifest cannot be read: {error}") from None


def _draft(root: Path, changelog: Changelog, tag: Tag, record: Record, base: bool) -> Entry:
    before = lineage.predecessor([entry.tag for entry in changelog.entries], tag)
    follows = None
    if before:
        known = Record.read(root / RECORDS, before)
        if known is None:
            missing = f"{RECORDS}/{before.line}/{before.name}"
            raise UserError(f"{tag}: follows {before}, but {missing} is missing: git checkout -- {missing}")
        _manifest(known, before)
        follows = before, known
    unreleased = {} if base else changelog.unreleased.get(tag.line, {})
    today = datetime.datetime.now(datetime.UTC).date()
    return draft.entry(tag, today, record, follows, unreleased)


def _files(root: Path, entry: Entry, record: Record, release: int | None) -> dict[str, bytes]:
    tag = entry.tag
    files = {f"{RECORDS}/{tag.line}/{tag.name}/{name}": data for name, data in record.files().items()}
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    files[CHANGELOG] = grammar.insert(text, entry, takes_unreleased=release is not None).encode()
    if release is not None:
        where = line_data.path(tag.line)
        files[where] = line_data.with_release((root / where).read_text(encoding="utf-8"), tag.line, release).encode()
    return files


def _result(entry: Entry, written: tuple[str, ...], resumed: bool) -> Cut:
    texts = [entry.summary, *(bullet.text for bullets in entry.sections.values() for bullet in bullets)]
    texts += [bullet.text for bullet in entry.evidence]
    return Cut(entry, written, tuple(text for text in texts if draft.TODO in text), resumed)


def reader(root: Path) -> line_data.Reader:
    """Reads files of the tree `root`."""

    def read(path: str) -> bytes | None:
        file = root / path
        return file.read_bytes() if file.is_file() else None

    return read
