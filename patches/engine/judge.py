"""A whole series held against a wheel: every patch judged, whatever happened to those before it."""

import warnings
from dataclasses import dataclass

from patches.engine.apply import FileFit, State, fit_file, worst
from patches.engine.errors import PatchError
from patches.engine.series import Patch, Series
from patches.engine.wheel import Wheel


@dataclass(frozen=True)
class Verdict:
    """One patch judged. `after` names the failed patches that it waits for: its state is then not final."""

    patch: Patch
    state: State
    files: tuple[FileFit, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What a series makes of a wheel.

    `before` holds the wheel's content (None: no such file) and `content` the series' result, of every file
    that some patch touches; the latter counts only if `ok`. `shared` maps each file touched by several
    patches to their names.
    """

    verdicts: tuple[Verdict, ...]
    problems: tuple[str, ...]
    shared: dict[str, tuple[str, ...]]
    before: dict[str, bytes | None]
    content: dict[str, bytes]

    @property
    def ok(self) -> bool:
        """Whether every patch applies exactly and nothing is wrong with the series."""
        return not self.problems and all(verdict.state is State.CLEAN for verdict in self.verdicts)


def judge(series: Series, wheel: Wheel) -> Outcome:
    """Hold every patch against the wheel, in order, and go on after a failure.

    After a patch that would apply at an offset, or is already upstream, the next ones see its result; after
    one that has no place, later patches of the same files wait for it: State.BLOCKED.
    """
    before: dict[str, bytes | None] = {}
    content: dict[str, bytes] = {}
    failed: dict[str, list[str]] = {}
    problems = list(series.problems)
    verdicts: list[Verdict] = []
    for patch in series.patches:
        for path in patch.paths:
            if path not in before:
                try:
                    before[path] = wheel.read(path)
                except PatchError as error:
                    problems.append(str(error))
                    before[path] = None
        fits = tuple(fit_file(diff, content.get(diff.path, before[diff.path])) for diff in patch.diffs)
        after = tuple(dict.fromkeys(name for path in patch.paths for name in failed.get(path, ())))
        for fit in fits:
            if fit.result is None:
                failed.setdefault(fit.path, []).append(patch.name)
            else:
                content[fit.path] = fit.result
        if not patch.diffs:
            for path in patch.paths:
                failed.setdefault(path, []).append(patch.name)
        verdicts.append(Verdict(patch, _state(patch, fits, failed, after), fits, after))
    if all(verdict.state is State.CLEAN for verdict in verdicts):
        problems += syntax_problems(content)
    return Outcome(tuple(verdicts), tuple(problems), _shared(series), before, content)


def _state(patch: Patch, fits: tuple[FileFit, ...], failed: dict[str, list[str]], after: tuple[str, ...]) -> State:
    if patch.faults:
        return State.INVALID
    own = worst([fit.state for fit in fits if not set(failed.get(fit.path, ())) & set(after)])
    return max(own, State.BLOCKED, key=lambda state: state.rank) if after else own


def _shared(series: Series) -> dict[str, tuple[str, ...]]:
    users: dict[str, list[str]] = {}
    for patch in series.patches:
        for path in patch.paths:
            users.setdefault(path, []).append(patch.name)
    return {path: tuple(names) for path, names in sorted(users.items()) if len(names) > 1}


def syntax_problems(content: dict[str, bytes]) -> list[str]:
    """The patched files that are no Python any more, one line each."""
    problems: list[str] = []
    for path, data in sorted(content.items()):
        if path.endswith(".py"):
            try:
                with warnings.catch_warnings(action="ignore"):
                    compile(data, path, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                line = getattr(error, "lineno", None)
                problems.append(f"{path}:{line or '?'}: the patched file is no valid Python: {error.args[0]}")
    return problems
