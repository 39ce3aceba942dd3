"""How good four levels are for a tensor, from the histogram of its E2M1 nibbles alone.

Levels are E2M1 values. A symmetric set {-b, -a, a, b} has 21 forms, any four of the 15 values 1365. A value takes the
nearest level; of two as near the one of smaller magnitude, and of -a and a the one of the value's own sign, so that
zeros go where their sign bit says. Errors are in units of the block's scale. All sums are of integers (halves and
quarters of the unit), so they depend on no order.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.common import formats

Counts = NDArray[np.int64]
Doubles = NDArray[np.float64]

CANONICAL = (-4.0, -1.0, 1.0, 4.0)

SYMMETRIC = tuple((-b, -a, a, b) for a, b in itertools.combinations((0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), 2))
SUBSETS = tuple(itertools.combinations(sorted({float(value) for value in formats.E2M1_VALUES}), 4))

# Beyond these the 2-bit form of a model is not to be trusted.
MOST_BIAS, MOST_BIAS_SHARE, LEAST_CANONICAL, MOST_RMS_RATIO = 0.005, 0.2, 0.9, 1.05


def nearest(levels: tuple[float, ...]) -> Doubles:
    """The level that each of the 16 nibbles takes."""
    chosen = []
    for nibble, value in enumerate(formats.E2M1_VALUES):
        own = -1.0 if nibble & 8 else 1.0
        chosen.append(min(levels, key=lambda level: (abs(level - value), abs(level), -level * own)))
    return np.array(chosen)


def _tables(sets: tuple[tuple[float, ...], ...]) -> tuple[Counts, Counts]:
    """For each set and nibble: the error in halves, and its square in quarters."""
    halves = np.array([2 * (nearest(levels) - formats.E2M1_VALUES) for levels in sets]).astype(np.int64)
    return halves, halves * halves


_OF_SYMMETRIC = _tables(SYMMETRIC)
_OF_SUBSETS = _tables(SUBSETS)
_POWER = (4 * formats.E2M1_VALUES**2).astype(np.int64)


@dataclass(frozen=True)
class Fit:
    """One set of levels on one tensor: mean signed error, and root mean square error over that of the values."""

    levels: tuple[float, ...]
    bias: float
    rms: float


@dataclass(frozen=True)
class Search:
    """The canonical set on a tensor, the best of the 21 and the best of the 1365 (least squares, first of equals)."""

    canonical: Fit
    symmetric: Fit
    free: Fit


def search(histogram: Counts) -> Search:
    """Searches for one tensor; `histogram` counts its 16 nibbles.

    Raises ValueError for a tensor without weights.
    """
    if histogram.shape != (16,) or histogram.sum() <= 0:
        raise ValueError("expected counts of 16 nibbles, not all zero")
    symmetric = int(np.argmin(_OF_SYMMETRIC[1] @ histogram))
    free = int(np.argmin(_OF_SUBSETS[1] @ histogram))
    return Search(
        _fit(SYMMETRIC, _OF_SYMMETRIC, SYMMETRIC.index(CANONICAL), histogram),
        _fit(SYMMETRIC, _OF_SYMMETRIC, symmetric, histogram),
        _fit(SUBSETS, _OF_SUBSETS, free, histogram),
    )


def _fit(sets: tuple[tuple[float, ...], ...], tables: tuple[Counts, Counts], at: int, histogram: Counts) -> Fit:
    error, square = int(tables[0][at] @ histogram), int(tables[1][at] @ histogram)
    power = int(_POWER @ histogram)
    relative = float(np.sqrt(square / power)) if power else 0.0
    return Fit(sets[at], error / 2 / int(histogram.sum()), relative)
