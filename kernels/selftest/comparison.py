"""What an operator computed beside what the oracle says."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """One output of an operator and its oracle's, in numpy, of one shape.

    Attributes:
        what: which output, of which problem, in a few words.
        found: the operator's.
        expected: the oracle's.
        bound: how far `found` may be from `expected`, of the same shape or one that spreads to it; None where every
            value must be the expected one.
    """

    what: str
    found: Array
    expected: Array
    bound: Array | None = None

    @property
    def share(self) -> float:
        """The largest error as a share of its bound; infinite where only one of both is a number. 0 without a bound."""
        if self.bound is None or self.found.shape != self.expected.shape:
            return 0.0
        same = (self.found == self.expected) | (np.isnan(self.found) & np.isnan(self.expected))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(same, 0.0, np.abs(self.found - self.expected) / self.bound)
        return float(np.max(np.nan_to_num(share, nan=np.inf, posinf=np.inf), initial=0.0))

    @property
    def problem(self) -> str | None:
        """What is wrong, in one line; None where nothing is."""
        if self.found.shape != self.expected.shape:
            return f"{self.what}: shape is {list(self.found.shape)}; expected {list(self.expected.shape)}"
        if self.bound is None:
            wrong = int(np.count_nonzero(self.found != self.expected))
            return f"{self.what}: {wrong} of {self.found.size} values differ; expected none to" if wrong else None
        return None if self.share <= 1 else f"{self.what}: error is {self.share:.3g} times its bound"
