"""Which release a rollback goes to, and why that one."""

from dataclasses import dataclass

from releases.changelog.entry import Entry
from releases.known import CHANGELOG, Known
from releases.rollback.state import State, What
from releases.tag import Tag
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Target:
    """The release to go to; `what` kind of change that is, and `why` this one, in words."""

    entry: Entry
    what: What
    why: str


def choose(known: Known, state: State, to: str | None, undo: bool) -> Target:
    """The release that `to` names (TAG, or what follows its colon); with `undo` the one before the last change.

    Without either, the one that the current release's entry in CHANGELOG.md names, whatever else an engine holds.

    Raises UserError where there is none, or the CHANGELOG does not have it.
    """
    line = state.line
    if undo:
        return _undo(known, state)
    if to is not None:
        tag = Tag.parse(to if ":" in to else f"{line}:{to}")
        if tag.line != line:
            raise UserError(f"{tag} is of the line {tag.line}; expected a release of {line}")
        entry = known.entry(tag)
        return Target(entry, _direction(known, state, entry), "asked for with --to")
    if state.current is None:
        newest = known.changelog.newest(line)
        if newest is None:
            raise UserError(f"{line}: no release in {CHANGELOG}, nothing to go back to")
        raise UserError(
            f"{line}: no release is recorded as current on this host; name the one to go to, for example"
            f" --to {newest.rollback or newest.tag}"
        )
    current = known.entry(Tag.parse(state.current.tag))
    if current.rollback is None:
        raise UserError(f"{current.tag}: {CHANGELOG} names no release to go back to; choose one with --to TAG")
    return Target(known.entry(current.rollback), "rollback", f"{CHANGELOG} names it as the way back from {current.tag}")


def lines(known: Known) -> list[str]:
    """The lines that have a release, in the order of the CHANGELOG."""
    return list(dict.fromkeys(entry.tag.line for entry in known.changelog.entries))


def _undo(known: Known, state: State) -> Target:
    if not state.history:
        raise UserError(f"{state.line}: nothing was changed on this host yet, so there is nothing to undo")
    last = state.history[-1]
    if last.before is None:
        raise UserError(f"{state.line}: nothing was current before change {last.number}; choose one with --to TAG")
    entry = known.entry(Tag.parse(last.before.tag))
    if entry.digest != last.before.digest:
        raise UserError(
            f"{entry.tag}: was {last.before.digest} before change {last.number}, {CHANGELOG} says {entry.digest}:"
            " one was altered; choose a release with --to TAG"
        )
    return Target(entry, "undo", f"undoes change {last.number}")


def _direction(known: Known, state: State, entry: Entry) -> What:
    if state.current is None:
        return "set"
    order = [str(one.tag) for one in known.changelog.entries]
    newer = state.current.tag in order and order.index(str(entry.tag)) < order.index(state.current.tag)
    return "forward" if newer else "rollback"
