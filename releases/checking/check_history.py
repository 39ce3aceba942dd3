"""CHANGELOG.md against every version of it that was ever committed: nothing of a release changes or goes."""

from collections.abc import Iterable, Iterator

from releases.changelog import grammar
from releases.changelog.entry import Changelog, Entry
from releases.changelog.problem import CHANGELOG, Problem
from releases.tag import Tag
from releases.tree.git import Git
from releases.tree.line_data import LineData

_HELD = {"digest": "Digest", "image_id": "Image ID", "commit": "Commit", "base": "Base", "steps": "Steps"}


def versions(git: Git) -> list[tuple[str, Changelog]]:
    """Each committed version of CHANGELOG.md that HEAD leads to, the oldest first, with its commit."""
    found: dict[bytes, str] = {}
    for commit in reversed(git.revisions(CHANGELOG)):
        data = git.show(commit, CHANGELOG)
        if data is not None:
            found.setdefault(data, commit)
    return [(commit, grammar.scan(data.decode(errors="replace"))[0]) for data, commit in found.items()]


def moved(now: Changelog, past: Iterable[tuple[str, Changelog]]) -> Iterator[Problem]:
    """Releases that were committed and are gone, or are said otherwise now."""
    present = {entry.tag: entry for entry in reversed(now.entries)}
    told: set[tuple[Tag, str]] = set()
    for commit, changelog in past:
        for entry in changelog.entries:
            same = present.get(entry.tag)
            if same is None:
                if (entry.tag, "") not in told:
                    yield Problem(0, f"{CHANGELOG}: {entry.tag} was released in {commit[:12]} and is gone: put it back")
                told.add((entry.tag, ""))
                continue
            for field, name in _HELD.items():
                was = getattr(entry, field)
                if was != getattr(same, field) and (entry.tag, field) not in told:
                    told.add((entry.tag, field))
                    text = f"{name} was {_shown(was)} in {commit[:12]}: a release is never moved"
                    yield Problem(same.line, f"{entry.tag}: {text}")


def reused(now: Changelog, past: Iterable[tuple[str, Changelog]], tree: Iterable[LineData]) -> Iterator[Problem]:
    """Numbers of steps that stood for another name, at any time in their line's history."""
    first: dict[tuple[str, int], tuple[str, Tag]] = {}
    releases: list[Entry] = [entry for _, changelog in past for entry in reversed(changelog.entries)]
    for entry in [*releases, *reversed(now.entries)]:
        for number, name in entry.steps:
            first.setdefault((entry.tag.line, number), (name, entry.tag))
    for entry in now.entries:
        for number, name in entry.steps:
            named, tag = first[entry.tag.line, number]
            if named != name:
                yield Problem(entry.line, f"{entry.tag}: {_again(number, name, named, tag)}")
    for line in tree:
        for step in line.steps:
            named, tag = first.get((line.name, step.number), (step.name, line.tag()))
            if named != step.name:
                yield Problem(0, f"images/{line.name}/line.bzl: {_again(step.number, step.name, named, tag)}")


def _again(number: int, name: str, named: str, tag: Tag) -> str:
    return f"step number {number} is {name}, and was {named} in {tag}: numbers are never reused"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{number} {name}" for number, name in value) or "none"
    return str(value)
