"""Everything that CHANGELOG.md says, held against the tree, its history, the records and the receipts."""

import datetime
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from images.engine import layout
from releases.changelog import grammar
from releases.changelog.entry import Changelog, Entry
from releases.changelog.problem import CHANGELOG, Problem
from releases.checking import check_commits, check_evidence, check_history, check_records
from releases.cutting import cut, journal
from releases.known import RECORDS
from releases.record import Record
from releases.tag import Tag
from releases.tree import build, line_data
from releases.tree.git import Git
from releases.tree.line_data import LineData
from tools.cli.errors import UserError

Doing = Callable[[str], AbstractContextManager[None]]
Choice = Callable[[Changelog], list[Entry]]

@dataclass(frozen=True)
class Findings:
    """What came out: all problems by line, what could not be checked, and the tags that were looked at."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    releases: tuple[Tag, ...]


def check(root: Path, rebuild: Choice | None = None, doing: Doing | None = None) -> Findings:
    """Checks the tree `root`; with `rebuild`, which chooses releases, also builds those again, which `doing` shows.

    Raises UserError only where there is nothing to check: no CHANGELOG.md, no git.
    """
    git = Git(root)
    git.head()
    try:
        text = (root / CHANGELOG).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{CHANGELOG}: is not UTF-8 at byte {error.start}") from None
    changelog, problems = grammar.scan(text)
    notes: list[str] = []
    shallow = git.is_shallow()
    if shallow:
        notes.append("this clone is shallow: history and commits before it were not checked: git fetch --unshallow")
    problems += _unfinished(git)
    problems += _entries(root, git, changelog, shallow, notes)
    lines, faults = _lines(root)
    past = check_history.versions(git)
    problems += faults
    problems += check_history.moved(changelog, past)
    problems += check_history.reused(changelog, past, lines)
    problems += _tree(root, changelog, lines)
    if rebuild and doing:
        problems += _rebuild(git, rebuild(changelog), doing)
    return Findings(tuple(sorted(set(problems))), tuple(notes), tuple(entry.tag for entry in changelog.entries))


def newest(changelog: Changelog) -> list[Entry]:
    """The newest release of each line, and the r0 of the same commit."""
    found = []
    for line in dict.fromkeys(entry.tag.line for entry in changelog.entries):
        first = changelog.newest(line)
        assert first is not None
        found += [entry for entry in changelog.entries if (entry.tag.line, entry.commit) == (line, first.commit)]
    return found


def every(changelog: Changelog) -> list[Entry]:
    """All releases."""
    return list(changelog.entries)


def _unfinished(git: Git) -> Iterator[Problem]:
    try:
        made = journal.pending(cut.journal_file(git))
    except UserError as error:
        yield Problem(0, str(error))
        return
    if made:
        verb = f"moet release cut {made.facts.get('line')}" + (" --base" if made.facts.get("base") == "True" else "")
        yield Problem(0, f"{made.about} was interrupted: {verb} finishes it")


def _entries(root: Path, git: Git, changelog: Changelog, shallow: bool, notes: list[str]) -> Iterator[Problem]:
    digests = {entry.digest: str(entry.tag) for entry in reversed(changelog.entries)}
    receipts = check_evidence.Receipts(root, digests)
    records: dict[Tag, Record] = {}
    today = datetime.datetime.now(datetime.UTC).date()
    for index in range(len(changelog.entries) - 1, -1, -1):
        entry, older = changelog.entries[index], changelog.entries[index + 1 :]
        if entry.date > today:
            yield Problem(entry.line, f"{entry.tag}: is dated {entry.date}, today is {today}")
        yield from check_records.words(entry)
        yield from check_evidence.evidence(entry, receipts)
        yield from check_records.lineage_of(entry, older)
        yield from check_commits.commit(entry, git, shallow, notes)
        try:
            found = Record.read(root / RECORDS, entry.tag)
        except UserError as error:
            yield Problem(entry.line, f"{entry.tag}: {error}")
            continue
        faults = list(check_records.record(entry, found))
        yield from faults
        before = records.get(entry.follows) if entry.follows else None
        if found and (before or entry.follows is None) and not any("cannot be read" in one.text for one in faults):
            records[entry.tag] = found
            yield from check_records.steps(entry, found, before)


def _lines(root: Path) -> tuple[list[LineData], list[Problem]]:
    lines, problems = [], []
    for path in sorted((root / "images").glob("*/line.bzl")):
        try:
            lines.append(line_data.read(cut.reader(root), path.parent.name))
        except UserError as error:
            problems.append(Problem(0, str(error)))
    return lines, problems


def _tree(root: Path, changelog: Changelog, lines: list[LineData]) -> Iterator[Problem]:
    released = {entry.tag: entry for entry in changelog.entries}
    for line in lines:
        if line.tag() in released:
            text = f"release = {line.release}, but {line.tag()} is released ({CHANGELOG}:{released[line.tag()].line})"
            yield Problem(0, f"{line_data.path(line.name)}: {text}: set {line.release + 1}")
    for name in sorted(set(changelog.unreleased) - {line.name for line in lines}):
        yield Problem(0, f"{CHANGELOG}: [Unreleased] speaks of {name}, and there is no {line_data.path(name)}")
    for folder in sorted(path for path in (root / RECORDS).glob("*/*") if path.is_dir()):
        tag = f"{folder.parent.name}:{folder.name}"
        if tag not in {str(one) for one in released}:
            yield Problem(0, f"{RECORDS}/{folder.parent.name}/{folder.name}: {CHANGELOG} has no release {tag}")


def _rebuild(git: Git, entries: list[Entry], doing: Doing) -> Iterator[Problem]:
    for commit, same in groupby(sorted(entries, key=lambda entry: entry.commit), lambda entry: entry.commit):
        if git.resolve(commit) is None:
            continue
        with build.elsewhere(git, commit) as workspace:
            for entry in same:
                with doing(f"building {entry.tag} of {commit[:12]} again"):
                    yield from _built(entry, workspace)


def _built(entry: Entry, workspace: build.Workspace) -> Iterator[Problem]:
    try:
        digest = layout.read(workspace.built(entry.tag)).manifest.digest
    except UserError as error:
        yield Problem(entry.line, f"{entry.tag}: cannot be built again: {error}")
        return
    if digest != entry.digest:
        text = f"built again it is {digest}: moet image verify {entry.tag} names what differs"
        yield Problem(entry.line, f"{entry.tag}: {text}")
