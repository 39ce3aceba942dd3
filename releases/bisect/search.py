"""Binary search between a state that is good and one that is bad, past states that cannot be judged."""

from collections.abc import Callable
from dataclasses import dataclass

from releases.bisect.verdict import Verdict


@dataclass(frozen=True)
class Bounds:
    """The last state known to be good and the first known to be bad; between them, none could be judged."""

    good: int
    bad: int


def search(good: int, bad: int, judge: Callable[[int], Verdict]) -> Bounds:
    """Narrows down where the verdict changes between the states `good` and `bad`."""
    unknown: set[int] = set()
    while inside := [state for state in range(good + 1, bad) if state not in unknown]:
        middle = min(inside, key=lambda state: abs(2 * state - good - bad))
        match judge(middle):
            case Verdict.GOOD:
                good = middle
            case Verdict.BAD:
                bad = middle
            case Verdict.UNKNOWN:
                unknown.add(middle)
    return Bounds(good, bad)
