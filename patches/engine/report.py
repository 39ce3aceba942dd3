"""The report on a series, for people."""

from patches.engine.apply import Fit, State
from patches.engine.judge import Outcome, Verdict
from patches.engine.wheel import Wheel


def as_text(outcome: Outcome, wheel: Wheel) -> str:
    """The report for a terminal: every patch, every hunk that misses, then what is wrong with the series."""
    lines = [f"{wheel.project} {wheel.version}: {len(outcome.verdicts)} patches"]
    for verdict in outcome.verdicts:
        lines += verdict_lines(verdict)
    for path, names in outcome.shared.items():
        lines.append(f"  touched by several: {path}: {', '.join(names)}")
    lines += [f"  problem: {problem}" for problem in outcome.problems]
    return "\n".join(lines) + "\n"


def summary(outcome: Outcome, wheel: Wheel) -> str:
    """One line: what is wrong, how much of it, and what to do."""
    bad = [verdict for verdict in outcome.verdicts if verdict.state is not State.CLEAN]
    named = ", ".join(f"{verdict.patch.name} ({verdict.state.value})" for verdict in bad)
    parts = [f"{len(bad)} of {len(outcome.verdicts)} patches do not apply exactly: {named}"] if bad else []
    if outcome.problems:
        parts.append(f"{len(outcome.problems)} problems with the series")
    return (
        f"{wheel.project} {wheel.version}: {'; '.join(parts)}; nothing was written. "
        "Refresh or drop the patches named, then check again"
    )


def verdict_lines(verdict: Verdict) -> list[str]:
    """One patch: how it stands, then each fault, file and hunk that is not clean."""
    lines = [f"  {verdict.state.value}: {verdict.patch.name}"]
    if verdict.after:
        lines[0] += f" (waits for {', '.join(verdict.after)})"
    lines += [f"      {fault}" for fault in verdict.patch.faults]
    for fit in verdict.files:
        if fit.state is not State.CLEAN:
            lines.append(f"      {fit.path}: {fit.state.value}" + (f": {fit.note}" if fit.note else ""))
            lines += [
                f"        {text}" for number, hunk in enumerate(fit.fits, 1) for text in _hunk_lines(number, hunk)
            ]
    return lines


def _hunk_lines(number: int, fit: Fit) -> list[str]:
    head = f"hunk {number} (patch line {fit.hunk.line}, file line {fit.stated})"
    if fit.state is State.CLEAN:
        return [f"{head}: exact"]
    if fit.state is State.OFFSET and fit.found_at is not None:
        return [f"{head}: would apply at offset {fit.found_at - fit.stated:+d} (line {fit.found_at})"]
    if fit.state is State.SUPERSEDED:
        return [f"{head}: its result is already there (line {fit.found_at})"]
    lines = [f"{head}: conflict" + (f": {fit.note}" if fit.note else "")]
    for line, expected, found in fit.differences:
        lines += [f"  line {line}: expected {expected!r}", f"  line {line}: found    {found!r}"]
    return lines
