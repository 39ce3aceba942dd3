"""A release's entry against its commit: the tree that it was built from."""

from collections.abc import Iterator

from releases.changelog.entry import Entry
from releases.changelog.problem import Problem
from releases.tree import bazel_label, line_data
from releases.tree.git import Git
from releases.tree.line_data import Reader
from tools.cli.errors import UserError


def commit(entry: Entry, git: Git, shallow: bool, notes: list[str]) -> Iterator[Problem]:
    """What of the commit contradicts the entry; in a shallow clone, `notes` gets what could not be looked at."""
    if git.resolve(entry.commit) is None:
        if shallow:
            notes.append(f"{entry.tag}: commit {entry.commit} is not in this shallow clone: nothing of it was checked")
        else:
            yield Problem(entry.line, f"{entry.tag}: commit {entry.commit} does not exist here: git fetch it")
        return
    if not git.is_ancestor(entry.commit, "HEAD"):
        if shallow:
            notes.append(f"{entry.tag}: whether its commit is part of this branch cannot be told in a shallow clone")
        else:
            yield Problem(entry.line, f"{entry.tag}: commit {entry.commit} is not part of what is checked out")
    if entry.date < git.commit_time(entry.commit).date():
        made = git.commit_time(entry.commit).date()
        yield Problem(entry.line, f"{entry.tag}: is dated {entry.date}, before its commit of {made}")
    tagged = git.tag_commit(entry.tag.git)
    if tagged not in (None, entry.commit):
        yield Problem(entry.line, f"{entry.tag}: git tag {entry.tag.git} points to {tagged}: tags are never moved")
    try:
        yield from _tree(entry, at(git, entry.commit))
    except UserError as error:
        yield Problem(entry.line, f"{entry.tag}: at its commit, {error}")


def at(git: Git, revision: str) -> Reader:
    """Reads files of a commit, each once."""
    known: dict[str, bytes | None] = {}

    def read(path: str) -> bytes | None:
        if path not in known:
            known[path] = git.show(revision, path)
        return known[path]

    return read


def _tree(entry: Entry, reader: Reader) -> Iterator[Problem]:
    data = line_data.read(reader, entry.tag.line)
    where = f"at its commit, {line_data.path(entry.tag.line)}"
    built = data.tag(0 if entry.tag.number == 0 else None)
    if built != entry.tag:
        yield Problem(entry.line, f"{entry.tag}: {where} makes {built}")
    if data.base != entry.base:
        yield Problem(entry.line, f"{entry.tag}: {where} has the base {data.base}, Base is {entry.base}")
    steps = tuple((step.number, step.name) for step in data.steps) if entry.tag.number else ()
    if tuple(sorted(steps)) != entry.steps:
        listed = ", ".join(f"{number} {name}" for number, name in steps) or "none"
        yield Problem(entry.line, f"{entry.tag}: {where} has the steps {listed}")
    for step in data.steps if entry.tag.number else ():
        label = step.evidence.startswith("//")
        if not (bazel_label.exists(reader, step.evidence) if label else reader(step.evidence) is not None):
            what = "makes no such target" if label else "has no such file"
            text = f"step {step.number} {step.name} gives {step.evidence} as its evidence; its commit {what}"
            yield Problem(entry.line, f"{entry.tag}: {text}")
