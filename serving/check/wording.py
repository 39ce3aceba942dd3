"""What `moet serve check` prints."""

from dataclasses import asdict
from typing import Any

from serving.check.result import Result
from serving.check.run import Run
from serving.check.target import Target
from tools.cli.output import Output

_STYLES = {"pass": "green", "low": "yellow", "fail": "bold red", "skipped": "dim"}


class Shown:
    """Prints results, and keeps what was found, without what others published and what is usual.

    That is what a receipt has: a figure in it is one that was measured.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._told: set[str] = set()
        self.found: list[str] = []

    def result(self, result: Result) -> None:
        """Prints one: a line, and below it how it compares, and what is usual and was not said before."""
        self.found.append(f"{result.state:<8} {result.check}: {result.what}")
        self._out.line(self.found[-1], _STYLES[result.state])
        for line in (*result.beside, *(one for one in result.advice if one not in self._told)):
            self._out.line(f"         {line}")
        self._told.update(result.advice)

    def end(self, run: Run) -> None:
        """Prints how many there are of each state, and says where published figures are from."""
        self.found.append(summary(run))
        self._out.line(self.found[-1])
        if run.published and any(result.beside for result in run.results):
            self._out.note(f"published figures: {run.published.source}; none of them was measured by Moet")


def summary(run: Run) -> str:
    """How many there are of each state, and how many were not come to."""
    counts = ", ".join(f"{sum(one.state == state for one in run.results)} {state}" for state in _STYLES)
    ended = f"; partial: stopped after {len(run.results)} of {run.total or 'the'} checks" if run.partial else ""
    return counts + ended


def document(target: Target, run: Run, receipt: str | None) -> dict[str, Any]:
    """The results as JSON has them; `receipt` is the file that has them too."""
    return {
        "schema": "moet.serve-check.v1",
        "server": target.words,
        "url": target.api.base_url,
        "model": run.model,
        "line": run.line,
        "published": run.published.source if run.published else None,
        "image": {"digest": target.digest, "tag": target.tag, "doubt": target.doubt},
        "partial": run.partial,
        "checks": [asdict(one) for one in run.results],
        "receipt": receipt,
    }
