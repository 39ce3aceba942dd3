"""What is fixed by the format, and what is counted while a matrix is quantized."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Changes when the same checkpoint would give other bytes.
QUANTIZER_ABI = 1

ZERO_MODES = ("auto", "sign", "alt")

# In auto, zeros alternate when the rarer sign has less than one in this many of them.
RARE = 20

DELTAS = ("fp4", "quintal")

# Fields of the counts, after the 16 of the histogram.
FIELDS = ("positive_zeros", "negative_zeros", "alternated", "zero_blocks", "saturated", "clamped")


@dataclass(frozen=True)
class Counts:
    """What one matrix is made of, in whole numbers.

    Attributes:
        histogram: of the 16 nibbles, after the zero mode.
        positive_zeros: weights that are exactly zero and have no sign bit.
        negative_zeros: those that have one.
        alternated: 1 where zeros took their sign from the column.
        zero_blocks: blocks of 32 that are all zero.
        saturated: weights above 6 units, which 6 stands for.
        clamped: blocks whose exponent is beyond -127 to 127.
    """

    histogram: tuple[int, ...]
    positive_zeros: int
    negative_zeros: int
    alternated: int
    zero_blocks: int
    saturated: int
    clamped: int

    @classmethod
    def of(cls, numbers: "NDArray[np.int64] | list[int]") -> "Counts":
        """Counts of 16 + len(FIELDS) numbers.

        Raises ValueError when there are not that many, or one is negative.
        """
        whole = [int(one) for one in numbers]
        if len(whole) != 16 + len(FIELDS) or min(whole) < 0:
            raise ValueError(f"expected {16 + len(FIELDS)} counts, found {whole}")
        return cls(tuple(whole[:16]), *whole[16:])

    def numbers(self) -> list[int]:
        """What of() takes."""
        return [*self.histogram, *(int(getattr(self, field)) for field in FIELDS)]


def alternates(zero_mode: str, positive: int, negative: int) -> bool:
    """Whether a matrix with so many exact zeros of each sign takes their sign from the column.

    >>> alternates("auto", 951, 49), alternates("auto", 950, 50), alternates("auto", 0, 0)
    (True, False, False)
    """
    if zero_mode == "auto":
        return min(positive, negative) * RARE < positive + negative
    return zero_mode == "alt" and positive + negative > 0
