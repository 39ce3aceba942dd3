"""Which release follows which, and what of a step a bullet must say."""

import re
from collections.abc import Iterable, Sequence

from releases.changelog.entry import Bullet, Entry
from releases.cutting.delta import Delta
from releases.tag import Tag

# The sections in which a bullet "Step N, NAME: ..." speaks of a step that is new, gone, or another.
ADDED = ("Added",)
RETIRED = ("Removed",)
CHANGED = ("Changed", "Deprecated", "Fixed", "Security")

_STEP = re.compile(r"Step ([1-9][0-9]*), ([a-z0-9-]+):")


def predecessor(older: Iterable[Tag], tag: Tag) -> Tag | None:
    """The release that `tag` follows, out of `older` ones, newest first; None: it is the first of its line.

    An r0, which is upstream without steps, follows the r0 before it. Any other follows the one with steps before it,
    else the newest r0.
    """
    line = [one for one in older if one.line == tag.line]
    bases = [one for one in line if one.number == 0]
    if tag.number == 0:
        return bases[0] if bases else None
    return next((one for one in line if one.number > 0), bases[0] if bases else None)


def spoken_of(sections: dict[str, tuple[Bullet, ...]], names: Sequence[str]) -> dict[tuple[int, str], Bullet]:
    """Number and name of the steps that bullets of the sections `names` begin with, and the bullet."""
    found = {}
    for section in names:
        for bullet in sections.get(section, ()):
            if match := _STEP.match(bullet.text):
                found[int(match[1]), match[2]] = bullet
    return found


def wanted(delta: Delta) -> list[tuple[tuple[str, ...], str, list[tuple[int, str]]]]:
    """For each kind of change: the sections that may speak of it, the word for it, and the steps."""
    return [
        (ADDED, "added", [(step.number, step.name) for step in delta.added]),
        (RETIRED, "retired", [(step.number, step.name) for step in delta.retired]),
        (CHANGED, "changed", [(change.step.number, change.step.name) for change in delta.changed]),
    ]


def names(entry: Entry) -> str:
    """A release's steps, for people."""
    return ", ".join(f"{number} {name}" for number, name in entry.steps) or "none"
