"""Placing hunks: exactly, or else saying how they miss."""

import enum
import itertools
from dataclasses import dataclass

from patches.engine.diff import FileDiff, Hunk
from patches.engine.text import show, split_lines

_SHOWN_LINES = 3


class State(enum.Enum):
    """How a hunk, a file or a patch stands; from best to worst."""

    CLEAN = "clean"
    OFFSET = "would apply at an offset"
    SUPERSEDED = "already upstream"
    BLOCKED = "depends on a failed patch"
    CONFLICT = "conflict"
    INVALID = "invalid"

    @property
    def rank(self) -> int:
        """0 for the best state; the state of a whole is that of its worst part."""
        return list(State).index(self)


def worst(states: list[State]) -> State:
    """The worst of `states`; CLEAN if there is none."""
    return max(states, key=lambda state: state.rank, default=State.CLEAN)


@dataclass(frozen=True)
class Fit:
    """One hunk held against a file.

    `stated` and `found_at` are 1-based lines of the old file; `found_at` is None unless the hunk, or with
    SUPERSEDED its result, stands at just one place. `differences` holds (line, expected, found) of the
    closest place.
    """

    hunk: Hunk
    state: State
    stated: int
    found_at: int | None
    note: str = ""
    differences: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True)
class FileFit:
    """A file's diff held against its content.

    `result` is None where a hunk has no place; `partial` then has the other hunks applied (None: no such file).
    """

    path: str
    state: State
    fits: tuple[Fit, ...]
    result: bytes | None
    note: str = ""
    partial: bytes | None = None


def fit_file(diff: FileDiff, content: bytes | None) -> FileFit:
    """Hold `diff` against `content` (None: no such file). Only state CLEAN means that it applies exactly.

    Wherever each hunk has a place, `result` is what a person would want next, so that later patches can
    be judged.
    """
    if diff.created:
        return _fit_new(diff, content)
    if content is None:
        return FileFit(diff.path, State.CONFLICT, (), None, "no such file in the wheel")
    lines = split_lines(content)
    fits = tuple(_fit_hunk(lines, hunk) for hunk in diff.hunks)
    states = {fit.state for fit in fits}
    state = worst([fit.state for fit in fits])
    note = ""
    if State.SUPERSEDED in states and len(states) > 1:
        state, note = State.CONFLICT, "some hunks are already upstream, some are not: refresh the patch"
    todo = [fit for fit in fits if fit.found_at is not None and fit.state is not State.SUPERSEDED]
    if any(_end(here) > (after.found_at or 0) for here, after in itertools.pairwise(todo)):
        return FileFit(diff.path, State.CONFLICT, fits, None, "hunks would apply out of order or overlap", content)
    result = _splice(lines, todo)
    if any(not line.endswith(b"\n") for line in result[:-1]):
        note = "a hunk drops the newline of a line that is not the last"
        return FileFit(diff.path, State.CONFLICT, fits, None, note, content)
    whole = all(fit.found_at is not None for fit in fits)
    return FileFit(diff.path, state, fits, b"".join(result) if whole else None, note, b"".join(result))


def reverse_file(diff: FileDiff, content: bytes) -> bytes | None:
    """Take `diff` back out of `content`. Returns None where it is not exactly there, else the old content.

    A created file's old content is empty.
    """
    lines = split_lines(content)
    for hunk in diff.hunks:
        # With the hunks above it taken out already, a hunk stands at its line in the old file.
        start = 0 if diff.created else hunk.start - 1
        if tuple(lines[start : start + len(hunk.after)]) != hunk.after:
            return None
        lines[start : start + len(hunk.after)] = hunk.before
    return b"".join(lines)


def _fit_new(diff: FileDiff, content: bytes | None) -> FileFit:
    hunk = diff.hunks[0]
    result = b"".join(hunk.after)
    if content is None:
        return FileFit(diff.path, State.CLEAN, (Fit(hunk, State.CLEAN, 0, 0),), result)
    if content == result:
        return FileFit(diff.path, State.SUPERSEDED, (Fit(hunk, State.SUPERSEDED, 0, 0),), result)
    return FileFit(
        diff.path, State.CONFLICT, (), None, "to be created, but it exists already with other content", content
    )


def _fit_hunk(lines: list[bytes], hunk: Hunk) -> Fit:
    stated = hunk.start
    if _matches(lines, stated, hunk.before):
        return Fit(hunk, State.CLEAN, stated, stated)
    places = _places(lines, hunk.before)
    if len(places) == 1:
        return Fit(hunk, State.OFFSET, stated, places[0])
    if len(places) > 1:
        listed = ", ".join(str(place) for place in places)
        return Fit(hunk, State.CONFLICT, stated, None, f"stands at several lines, not at the stated one: {listed}")
    done = _places(lines, hunk.after)
    if len(done) == 1:
        return Fit(hunk, State.SUPERSEDED, stated, done[0])
    closest = _closest(lines, hunk)
    differences = _differences(lines, closest, hunk.before)
    note = f"closest at line {closest}" if closest != stated else ""
    if _only_line_ends(lines[closest - 1 : closest - 1 + len(hunk.before)], hunk.before):
        note = "differs in line ends alone (CRLF against LF)"
    return Fit(hunk, State.CONFLICT, stated, None, note, differences)


def _end(fit: Fit) -> int:
    return (fit.found_at or 0) + len(fit.hunk.before)


def _matches(lines: list[bytes], start: int, wanted: tuple[bytes, ...]) -> bool:
    return start > 0 and tuple(lines[start - 1 : start - 1 + len(wanted)]) == wanted


def _places(lines: list[bytes], wanted: tuple[bytes, ...]) -> list[int]:
    return [start for start in range(1, len(lines) - len(wanted) + 2) if wanted and _matches(lines, start, wanted)]


def _closest(lines: list[bytes], hunk: Hunk) -> int:
    def likeness(start: int) -> tuple[int, int]:
        found = lines[start - 1 : start - 1 + len(hunk.before)]
        same = sum(a == b for a, b in zip(found, hunk.before, strict=False))
        return same, -abs(start - hunk.start)

    last = max(len(lines) - len(hunk.before) + 1, 1)
    best = max(range(1, last + 1), key=likeness)
    stated_is_inside = hunk.start <= last
    return best if likeness(best)[0] or not stated_is_inside else hunk.start


def _differences(lines: list[bytes], start: int, wanted: tuple[bytes, ...]) -> tuple[tuple[int, str, str], ...]:
    found: list[tuple[int, str, str]] = []
    for offset, expected in enumerate(wanted):
        at = start + offset
        actual = show(lines[at - 1]) if at <= len(lines) else "(end of file)"
        if at > len(lines) or lines[at - 1] != expected:
            found.append((at, show(expected), actual))
    return tuple(found[:_SHOWN_LINES])


def _only_line_ends(found: list[bytes], wanted: tuple[bytes, ...]) -> bool:
    return [line.rstrip(b"\r\n") for line in found] == [line.rstrip(b"\r\n") for line in wanted]


def _splice(lines: list[bytes], fits: list[Fit]) -> list[bytes]:
    result = list(lines)
    for fit in sorted(fits, key=lambda fit: fit.found_at or 0, reverse=True):
        start = (fit.found_at or 1) - 1
        result[start : start + len(fit.hunk.before)] = fit.hunk.after
    return result
