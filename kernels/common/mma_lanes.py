"""Which lane of a warp holds what of a block-scaled mma.sync m16n8k32: the contract of mma_policy.cuh, in numpy.

After the PTX ISA, "Matrix fragments for mma.m16n8k32" and "Block scaling for mma.sync". A [16, 32] is four registers of
four bytes a lane, B [32, 8] two, D [16, 8] four floats. A scale word has the UE8M0 bytes of four steps of 32 k. A row
of A takes it from lane 4 (row % 8) + 2 ta + row / 8, a column of B from lane 4 column + tb, where ta (0 or 1) and tb (0
to 3) are the instruction's thread-id selectors.
"""

import numpy as np
from numpy.typing import NDArray

from . import formats

LANES, ROWS, COLUMNS, DEPTH = 32, 16, 8, 32

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Places = tuple[NDArray[np.intp], NDArray[np.intp]]


def _both(first: NDArray[np.intp], second: NDArray[np.intp]) -> Places:
    shape = np.broadcast_shapes(first.shape, second.shape)
    return np.broadcast_to(first, shape), np.broadcast_to(second, shape)


def a_places() -> Places:
    """Row and k of every byte of A: two arrays [lane, register, byte]."""
    lane, register, byte = np.ogrid[:LANES, :4, :4]
    return _both(lane // 4 + register % 2 * 8, lane % 4 * 4 + register // 2 * 16 + byte)


def b_places() -> Places:
    """K and column of every byte of B: two arrays [lane, register, byte]."""
    lane, register, byte = np.ogrid[:LANES, :2, :4]
    return _both(lane % 4 * 4 + register * 16 + byte, lane // 4)


def d_places() -> Places:
    """Row and column of every float of D: two arrays [lane, register]."""
    lane, register = np.ogrid[:LANES, :4]
    return _both(lane // 4 + register // 2 * 8, lane % 4 * 2 + register % 2)


def a_scale_lanes(ta: int = 0) -> NDArray[np.intp]:
    """The lane that gives the scale word of each row of A: [16]."""
    row = np.arange(ROWS)
    return row % 8 * 4 + 2 * ta + row // 8


def b_scale_lanes(tb: int = 0) -> NDArray[np.intp]:
    """The lane that gives the scale word of each column of B: [8]."""
    return np.arange(COLUMNS) * 4 + tb


def mma_mx(a: Bytes, b: Bytes, a_words: Bytes, b_words: Bytes, step: int, tb: int = 0) -> Floats:
    """Returns the product of scaled A and scaled B, as the lanes hold it: float64 [lane, register].

    Args:
        a: E4M3 codes [lane, 4, 4].
        b: E4M3 codes [lane, 2, 4].
        a_words: UE8M0 bytes [lane, 4].
        b_words: as a_words.
        step: which byte of the words.
        tb: the selector of B's lanes.
    """
    left, right = np.empty((ROWS, DEPTH)), np.empty((DEPTH, COLUMNS))
    left[a_places()] = formats.decode_e4m3(a)
    right[b_places()] = formats.decode_e4m3(b)
    left *= formats.decode_ue8m0(a_words[a_scale_lanes(), step])[:, None]
    right *= formats.decode_ue8m0(b_words[b_scale_lanes(tb), step])[None, :]
    return np.asarray((left @ right)[d_places()])
