"""Code that is at another place in another version: added lines that upstream has by now, files that moved."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from patches.engine.diff import Hunk
from patches.engine.text import split_lines
from patches.engine.wheel import Wheel

_ALIKE = 0.5
_HINT = 0.1
_TELLING = 12
_BEST = 3


@dataclass(frozen=True)
class Found:
    """A place: `line` is 1-based."""

    path: str
    line: int


@dataclass(frozen=True)
class Candidate:
    """A file that may hold what another held; `share` of the other's telling lines is there (0 to 1)."""

    path: str
    share: float
    same_name: bool


class Elsewhere:
    """Two versions of a project: `old` that the patches are for, and `new`."""

    def __init__(self, old: Wheel, new: Wheel) -> None:
        self._old = old
        self._new = new
        self._content: dict[tuple[bool, str], list[bytes]] = {}
        self._raw: dict[str, bytes] = {}

    def upstream(self, hunk: Hunk, path: str) -> Found | None:
        """Where upstream has the lines that a hunk adds, whatever stands around them; None where it has not.

        Indentation aside, every run of added lines must stand there in one piece, oftener than in the old
        version, and one of them must be telling: a name or an expression, no lone bracket. The hunk's file is
        looked at first, then the others.
        """
        added = added_ranges(hunk)
        lines = [line for run in stripped_runs(hunk.after, added) for line in run]
        telling = max(lines, key=len, default=b"")
        if len(telling) < _TELLING or self._still_there(hunk, path):
            return None
        # An import says nothing about another file.
        alone = all(line.startswith((b"import ", b"from ")) for line in lines)
        others = [] if alone else [other for other in self._new.paths(".py") if other != path]
        for candidate in [path, *others]:
            if telling not in self._data(candidate):
                continue
            if (line := self._has(candidate, hunk, added)) is not None:
                return Found(candidate, line)
        return None

    def _has(self, path: str, hunk: Hunk, added: Sequence[tuple[int, int]]) -> int | None:
        """The line at which a file has what a hunk adds, one run of it oftener than it had; None if it has not."""
        old, new = self._lines(path, new=False), self._lines(path, new=True)
        first: int | None = None
        more = False
        for low, high in added:
            found: list[int] = []
            for run in stripped_runs(hunk.after, _slides(hunk.after, low, high)):
                found = _runs(new, run)
                more = more or len(found) > len(_runs(old, run))
                if found:
                    break
            if not found and any(line.strip() for line in hunk.after[low:high]):
                return None
            first = found[0] + 1 if first is None and found else first
        return first if more else None

    def _still_there(self, hunk: Hunk, path: str) -> bool:
        """Whether lines that the hunk takes away are in its file as often as they were."""
        old, new = self._lines(path, new=False), self._lines(path, new=True)
        removed = stripped_runs(hunk.before, removed_ranges(hunk))
        telling = [run for run in removed if max(map(len, run)) >= _TELLING]
        return any(len(_runs(new, run)) >= len(_runs(old, run)) for run in telling)

    def moved(self, path: str) -> list[Candidate]:
        """Files of the new version that may hold what `path` held: the likeliest first, at most three."""
        name = path.rpartition("/")[2]
        suffix = name[name.rindex(".") :] if "." in name else ""
        wanted = Counter(line for line in self._lines(path, new=False) if len(line) >= _TELLING)
        total = wanted.total() or 1
        found: list[Candidate] = []
        for other in self._new.paths(suffix):
            same = other.rpartition("/")[2] == name
            fresh = not self._old.has(other)
            have = Counter(self._lines(other, new=True))
            share = (wanted & have).total() / total
            grown = share - (wanted & Counter(self._lines(other, new=False))).total() / total
            if (same and fresh and share >= _HINT) or (share >= _ALIKE and grown > 0):
                found.append(Candidate(other, share, same))
        return sorted(found, key=lambda one: (-one.share, not one.same_name, one.path))[:_BEST]

    def _data(self, path: str) -> bytes:
        """A file of the new version; empty where it is not there."""
        if path not in self._raw:
            self._raw[path] = (self._new.read(path) if self._new.has(path) else None) or b""
        return self._raw[path]

    def _lines(self, path: str, *, new: bool) -> list[bytes]:
        """The stripped lines of a file; none where it is not there."""
        if (new, path) not in self._content:
            wheel = self._new if new else self._old
            data = wheel.read(path) if wheel.has(path) else None
            self._content[new, path] = [line.strip() for line in split_lines(data or b"")]
        return self._content[new, path]


def stripped_runs(lines: Sequence[bytes], ranges: Sequence[tuple[int, int]]) -> list[list[bytes]]:
    """The lines in each range, each stripped; empty ones at the edges of a run are dropped."""
    runs: list[list[bytes]] = []
    for low, high in ranges:
        run = [line.strip() for line in lines[low:high]]
        while run and not run[0]:
            del run[0]
        while run and not run[-1]:
            del run[-1]
        if run:
            runs.append(run)
    return runs


def added_ranges(hunk: Hunk) -> list[tuple[int, int]]:
    """The half-open ranges of `hunk.after` that are new."""
    return [(low, high) for tag, _, _, low, high in _opcodes(hunk) if tag in ("insert", "replace")]


def removed_ranges(hunk: Hunk) -> list[tuple[int, int]]:
    """The half-open ranges of `hunk.before` that go."""
    return [(low, high) for tag, low, high, _, _ in _opcodes(hunk) if tag in ("delete", "replace")]


def _slides(lines: Sequence[bytes], low: int, high: int) -> list[tuple[int, int]]:
    """The ranges that could as well be the ones added: a run between equal lines can be read higher or lower."""
    found = [(low, high)]
    while found[-1][0] > 0 and lines[found[-1][0] - 1] == lines[found[-1][1] - 1]:
        found.append((found[-1][0] - 1, found[-1][1] - 1))
    at = low, high
    while at[1] < len(lines) and lines[at[0]] == lines[at[1]]:
        at = at[0] + 1, at[1] + 1
        found.append(at)
    return found


def _opcodes(hunk: Hunk) -> list[tuple[str, int, int, int, int]]:
    return list(SequenceMatcher(None, hunk.before, hunk.after, autojunk=False).get_opcodes())


def _runs(lines: list[bytes], run: list[bytes]) -> list[int]:
    last = len(lines) - len(run)
    return [at for at in range(last + 1) if lines[at] == run[0] and lines[at : at + len(run)] == run]
