"""One family on one card: what came out."""

import importlib
import math
import time
from dataclasses import dataclass
from typing import Any

from .card import Card
from .comparison import Comparison


@dataclass(frozen=True)
class Outcome:
    """What testing a family on a card came to.

    Attributes:
        family: its name.
        card: where it ran.
        problem: what is wrong, or why nothing was tested, in one line; None where all is right.
        share: the largest error as a share of its bound.
        bounded: how many outputs were held to a bound.
        exact: how many had to be the oracle's to the bit.
        seconds: how long it took, the oracle included.
    """

    family: str
    card: Card
    problem: str | None
    share: float = 0.0
    bounded: int = 0
    exact: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        """In one line, for people."""
        where = f"{self.family} on {self.card.device}, {self.card.name}, compute capability {self.card.capability}"
        if self.problem is not None:
            return f"{where}: FAILED: {self.problem}"
        counted = [f"largest of {self.bounded} errors {self.share:.2f} of its bound"] * bool(self.bounded)
        counted += [f"{self.exact} outputs exact"] * bool(self.exact)
        return f"{where}: {', '.join(counted)}: ok ({self.seconds:.1f} s)"

    def document(self) -> dict[str, Any]:
        """For programs; `largest_error_share` is null where an output was no number and should have been one."""
        return {
            "family": self.family,
            "device": self.card.device,
            "card": self.card.name,
            "compute_capability": self.card.capability,
            "ok": self.problem is None,
            "problem": self.problem,
            "largest_error_share": self.share if math.isfinite(self.share) else None,
            "bounded_outputs": self.bounded,
            "exact_outputs": self.exact,
            "seconds": round(self.seconds, 3),
        }


def comparisons(family: str, device: str) -> list[Comparison]:
    """Runs the cases of a family, cases/<family>.py, on a device. Raises whatever they raise."""
    cases = importlib.import_module(f".cases.{family}", __package__)
    return list(cases.comparisons(device))


def of(family: str, card: Card) -> Outcome:
    """Tests a family on a card. What its cases raise is the outcome."""
    begin = time.monotonic()
    try:
        return _judged(family, card, comparisons(family, card.device), begin)
    except Exception as error:
        said = str(error).strip().splitlines() or [""]
        return Outcome(family, card, f"{type(error).__name__}: {said[0]}", seconds=time.monotonic() - begin)


def _judged(family: str, card: Card, found: list[Comparison], begin: float) -> Outcome:
    problems = [problem for comparison in found if (problem := comparison.problem)]
    if not found:
        problems = ["its cases compare nothing"]
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return Outcome(
        family,
        card,
        problems[0] + more if problems else None,
        max((comparison.share for comparison in found), default=0.0),
        sum(comparison.bound is not None for comparison in found),
        sum(comparison.bound is None for comparison in found),
        time.monotonic() - begin,
    )
