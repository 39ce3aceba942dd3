"""A series held against another version of its project: every patch judged, whatever became of the others."""

import datetime
from dataclasses import dataclass, field

from patches.engine.apply import FileFit, Fit, State, fit_file
from patches.engine.diff import FileDiff
from patches.engine.edit import redone
from patches.engine.errors import PatchError
from patches.engine.judge import judge, syntax_problems
from patches.engine.make import make_diff
from patches.engine.series import Patch, Series
from patches.engine.text import split_lines
from patches.engine.wheel import Wheel
from patches.tools.align import Alignment
from patches.tools.diagnosis import Diagnosis, FileFinding, HunkFinding, PatchFinding, Verdict
from patches.tools.elsewhere import Elsewhere, Found, removed_ranges

_KEPT = (Verdict.CLEAN, Verdict.OFFSET, Verdict.PARTLY)


@dataclass
class _Chain:
    """What the patches so far make of a wheel's files."""

    wheel: Wheel
    content: dict[str, bytes | None] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        if path not in self.content:
            self.content[path] = self.wheel.read(path) if self.wheel.has(path) else None
        return self.content[path]


def diagnose(
    series: Series, data: dict[str, bytes], pinned: Wheel, other: Wheel, today: datetime.date
) -> Diagnosis:
    """Judge every patch of `series`, which applies to `pinned`, on the wheel `other`.

    `data` is each patch's file. A patch that fails is left out, on both wheels, for those after it: what they
    are worth shows then, and a line that only moved because of it counts as in place. Raises PatchError if the
    series does not apply to its own wheel.
    """
    return _Doctor(series, data, pinned, other, today).run()


class _Doctor:
    def __init__(
        self, series: Series, data: dict[str, bytes], pinned: Wheel, other: Wheel, today: datetime.date
    ) -> None:
        outcome = judge(series, pinned)
        if not outcome.ok:
            bad = [verdict.patch.name for verdict in outcome.verdicts if verdict.state is not State.CLEAN]
            what = ", ".join(bad) or outcome.problems[0]
            raise PatchError(
                f"the series is not sound on its own {pinned.project} {pinned.version} ({what}): "
                "moet patch lint says more; mend that first"
            )
        self._series = series
        self._data = data
        self._today = today
        self._pinned = pinned
        self._other = other
        self._whole = _Chain(pinned)
        self._old = _Chain(pinned)
        self._new = _Chain(other)
        self._elsewhere = Elsewhere(pinned, other)
        self._alignments: dict[str, Alignment] = {}
        self._failed: dict[str, list[str]] = {}

    def run(self) -> Diagnosis:
        found = [self._patch(patch) for patch in self._series.patches]
        files = {path: data for path, data in self._new.content.items() if data is not None}
        changed = {
            path: data for path, data in files.items() if not self._other.has(path) or data != self._other.read(path)
        }
        steps: dict[str, list[tuple[str, str]]] = {}
        for patch in self._series.patches:
            for path in patch.paths:
                steps.setdefault(path, []).append((patch.name, patch.header.step if patch.header else ""))
        return Diagnosis(
            project=self._other.project,
            version=self._other.version,
            file=self._other.file,
            sha256=self._other.sha256,
            size=self._other.size,
            patches=tuple(found),
            shared={path: tuple(by) for path, by in sorted(steps.items()) if len({step for _, step in by}) > 1},
            problems=tuple(syntax_problems(changed)),
        )

    def _patch(self, patch: Patch) -> PatchFinding:
        waits = tuple(dict.fromkeys(name for path in patch.paths for name in self._failed.get(path, ())))
        old = {diff.path: fit_file(diff, self._old.read(diff.path)) for diff in patch.diffs}
        new = {diff.path: fit_file(diff, self._new.read(diff.path)) for diff in patch.diffs}
        files = tuple(self._file(diff, old[diff.path], new[diff.path], waits) for diff in patch.diffs)
        own = _own([file.verdict for file in files])
        note = ""
        if own is Verdict.PARTLY and (left := self._only_switch(patch, files)):
            own, note = Verdict.UPSTREAM, left
        results = {file.path: _result(new[file.path], file) for file in files}
        rebased = self._rebased(patch, new, results) if own in _KEPT else None
        if own in (*_KEPT, Verdict.UPSTREAM):
            self._old.content |= {path: fit.result for path, fit in old.items() if fit.result is not None}
            self._new.content |= {path: data for path, data in results.items() if data is not None and own in _KEPT}
        else:
            for path in patch.paths:
                self._failed.setdefault(path, []).append(patch.name)
        for diff in patch.diffs:
            self._whole.content[diff.path] = fit_file(diff, self._whole.read(diff.path)).result
        return PatchFinding(patch, _verdict(own, waits, files), own, waits, note, files, rebased)

    def _rebased(self, patch: Patch, fits: dict[str, FileFit], results: dict[str, bytes | None]) -> bytes:
        if all(fit.state is State.CLEAN for fit in fits.values()):
            return self._data[patch.name]
        pairs = [(path, self._new.read(path), data) for path, data in results.items()]
        body = b"".join(make_diff(path, before, data) for path, before, data in pairs if data is not None)
        return redone(self._data[patch.name], body, self._today)

    def _file(self, diff: FileDiff, old: FileFit, new: FileFit, waits: tuple[str, ...]) -> FileFinding:
        if not diff.created and self._new.read(diff.path) is None:
            return self._gone(diff)
        if not new.fits:
            return FileFinding(diff.path, Verdict.CONFLICT, new.note, ())
        sides = old.fits or tuple(Fit(hunk, State.CONFLICT, hunk.start, None) for hunk in diff.hunks)
        hunks = tuple(
            self._hunk(diff, number, was, now, waits)
            for number, (was, now) in enumerate(zip(sides, new.fits, strict=True), 1)
        )
        if new.result is None and all(hunk.state is not State.CONFLICT for hunk in hunks) and new.note:
            return FileFinding(diff.path, Verdict.CONFLICT, new.note, hunks)
        return FileFinding(diff.path, _of_hunks(hunks), "", hunks)

    def _hunk(self, diff: FileDiff, number: int, was: Fit, now: Fit, waits: tuple[str, ...]) -> HunkFinding:
        offset = None
        if now.found_at is not None:
            offset = now.found_at - (was.found_at if was.found_at is not None else was.stated)
        state = now.state
        if state in (State.CLEAN, State.OFFSET):
            state = State.OFFSET if offset else State.CLEAN
        if state is State.SUPERSEDED:
            return HunkFinding(number, now.hunk.line, state, None, "", (), Found(diff.path, now.found_at or 1))
        if state is not State.CONFLICT:
            return HunkFinding(number, now.hunk.line, state, offset, "", (), None)
        upstream = self._elsewhere.upstream(now.hunk, diff.path)
        if upstream:
            return HunkFinding(number, now.hunk.line, State.SUPERSEDED, None, "under other lines", (), upstream)
        change, note = self._change(diff, now, waits)
        return HunkFinding(number, now.hunk.line, state, None, note, change, None)

    def _change(self, diff: FileDiff, now: Fit, waits: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
        """What upstream did between the versions to the lines that a hunk quotes, and a word on it."""
        patched = split_lines(self._whole.read(diff.path) or b"")
        if diff.path not in self._alignments:
            before = split_lines(self._pinned.read(diff.path) or b"")
            self._alignments[diff.path] = Alignment(before, split_lines(self._other.read(diff.path) or b""))
        alignment = self._alignments[diff.path]
        start, end = now.hunk.start - 1, now.hunk.start - 1 + len(now.hunk.before)
        back = Alignment(patched, alignment.old)
        low, high = back.region(start, end)
        change = alignment.change(low, high)
        if not change:
            quotes = f": the hunk quotes lines of {', '.join(waits)}" if waits else ""
            return (), now.note or f"upstream's lines are the same in both{quotes}"
        if now.note.startswith("stands at several"):
            return tuple(change), now.note
        touched = [start + at for begin, stop in removed_ranges(now.hunk) for at in range(begin, stop)]
        whole = all(back.kept(at) and alignment.kept(back.region(at, at + 1)[0]) for at in touched)
        if whole and any(alignment.kept(at) for at in range(low, high)):
            return tuple(change), "only lines around the change differ"
        return tuple(change), ""

    def _gone(self, diff: FileDiff) -> FileFinding:
        found = []
        for candidate in self._elsewhere.moved(diff.path):
            fit = fit_file(diff, self._new.read(candidate.path))
            places = sum(one.found_at is not None for one in fit.fits)
            there = f"{places} of {len(diff.hunks)} hunks have a place there"
            found.append((candidate, there))
        hunks = []
        for number, hunk in enumerate(diff.hunks, 1):
            upstream = self._elsewhere.upstream(hunk, diff.path)
            state = State.SUPERSEDED if upstream else State.CONFLICT
            hunks.append(HunkFinding(number, hunk.line, state, None, "", (), upstream))
        if all(hunk.upstream for hunk in hunks):
            return FileFinding(diff.path, Verdict.UPSTREAM, "the file is gone", tuple(hunks), tuple(found))
        return FileFinding(diff.path, Verdict.GONE, f"not in {self._other.version}", tuple(hunks), tuple(found))

    def _only_switch(self, patch: Patch, files: tuple[FileFinding, ...]) -> str:
        """A note where all that is not upstream yet registers the patch's switch; empty otherwise."""
        switch = patch.header.switch if patch.header else None
        if switch is None:
            return ""
        registry = f"{self._pinned.project}/envs.py"
        hunks = {diff.path: diff.hunks for diff in patch.diffs}
        for file in files:
            for finding, hunk in zip(file.hunks, hunks[file.path], strict=True):
                if finding.state is not State.SUPERSEDED and (
                    file.path != registry or switch.encode() not in b"".join(hunk.after)
                ):
                    return ""
        return f"what is left only registers {switch}: drop the patch with its step"


def _result(fit: FileFit, file: FileFinding) -> bytes | None:
    """What a file becomes, without the hunks that upstream has at another place; None where there is nothing to do."""
    if fit.result is not None or file.verdict in (Verdict.GONE, Verdict.CONFLICT):
        return fit.result
    return fit.partial


def _verdict(own: Verdict, waits: tuple[str, ...], files: tuple[FileFinding, ...]) -> Verdict:
    """The verdict with the failed patches counted: it waits for them unless it has a trouble of its own."""
    troubles = [hunk for file in files for hunk in file.hunks if hunk.state is State.CONFLICT]
    own_trouble = any(hunk.change for hunk in troubles) or any(not file.hunks for file in files)
    if waits and (own.rank < Verdict.WAITS.rank or (own is Verdict.CONFLICT and not own_trouble)):
        return Verdict.WAITS
    return own


def _own(verdicts: list[Verdict]) -> Verdict:
    if any(verdict in (Verdict.GONE, Verdict.CONFLICT) for verdict in verdicts):
        return max(verdicts, key=lambda verdict: verdict.rank)
    if all(verdict is Verdict.UPSTREAM for verdict in verdicts):
        return Verdict.UPSTREAM
    if any(verdict in (Verdict.UPSTREAM, Verdict.PARTLY) for verdict in verdicts):
        return Verdict.PARTLY
    return max(verdicts, key=lambda verdict: verdict.rank)


def _of_hunks(hunks: tuple[HunkFinding, ...]) -> Verdict:
    states = {hunk.state for hunk in hunks}
    if State.CONFLICT in states:
        return Verdict.CONFLICT
    if states == {State.SUPERSEDED}:
        return Verdict.UPSTREAM
    if State.SUPERSEDED in states:
        return Verdict.PARTLY
    return Verdict.OFFSET if State.OFFSET in states else Verdict.CLEAN
