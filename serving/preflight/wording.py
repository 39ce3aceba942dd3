"""What `moet serve preflight` prints."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from serving.preflight.result import Result
from serving.preflight.subject import Subject
from tools.cli.output import Output

_STYLES = {"ok": "green", "hint": "yellow", "finding": "bold red", "skipped": "dim"}


def show(result: Result, out: Output) -> None:
    """Prints a result: one line, and under a finding or hint why it matters and what mends it."""
    out.line(f"{result.state:<8} {result.check}: {result.what}", _STYLES[result.state])
    if result.why:
        out.line(f"         why: {result.why}")
        out.line(f"         mend: {result.mend}")


def summary(results: Sequence[Result]) -> str:
    """How many there are of each state."""
    count = {state: sum(one.state == state for one in results) for state in _STYLES}
    findings, hints = (f"{count[one]} {one}{'s' * (count[one] != 1)}" for one in ("finding", "hint"))
    return f"{count['ok']} ok, {findings}, {hints}, {count['skipped']} skipped"


def document(subject: Subject, results: Sequence[Result]) -> dict[str, Any]:
    """The results as JSON has them."""
    return {
        "schema": "moet.serve-preflight.v1",
        "profile": subject.settings.profile.line,
        "image": subject.launch.image,
        "findings": sum(one.state == "finding" for one in results),
        "checks": [asdict(one) for one in results],
    }
