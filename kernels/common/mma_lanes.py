"""Which lane of a warp holds what of a block-scaled mma.sync: m16n8k32 of E4M3 and m16n8k64 of E2M1, in numpy.

After the PTX ISA, "Matrix fragments for mma.m16n8k32", "... m16n8k64" and "Block scaling for mma.sync". A [16, k] is
four registers of 32 bits a lane, B [k, 8] two, D [16, 8] four floats. A register has four E4M3, or eight E2M1, the
first in the lowest bits. A scale word has the UE8M0 bytes of four steps of 32 k. A row of A takes it from lane
4 (row % 8) + 2 ta + row / 8, a column of B from lane 4 column + tb, where ta (0 or 1) and tb (0 to 3) are the
instruction's thread-id selectors. With E2M1 two bytes of the word count, for the two halves of the 64 k.
"""

import numpy as np
from numpy.typing import NDArray

from . import formats

LANES, ROWS, COLUMNS = 32, 16, 8
E4M3, E2M1 = 8, 4

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Places = tuple[NDArray[np.intp], NDArray[np.intp]]


def _both(first: NDArray[np.intp], second: NDArray[np.intp]) -> Places:
    shape = np.broadcast_shapes(first.shape, second.shape)
    return np.broadcast_to(first, shape), np.broadcast_to(second, shape)


def a_places(bits: int = E4M3) -> Places:
    """Row and k of every value of A, of `bits` bits each: two arrays [lane, register, value]."""
    each = 32 // bits
    lane, register, value = np.ogrid[:LANES, :4, :each]
    return _both(lane // 4 + register % 2 * 8, (lane % 4 + register // 2 * 4) * each + value)


def b_places(bits: int = E4M3) -> Places:
    """K and column of every value of B, of `bits` bits each: two arrays [lane, register, value]."""
    each = 32 // bits
    lane, register, value = np.ogrid[:LANES, :2, :each]
    return _both((lane % 4 + register * 4) * each + value, lane // 4)


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


def mma_mx(a: Bytes, b: Bytes, a_words: Bytes, b_words: Bytes, step: int, tb: int = 0, bits: int = E4M3) -> Floats:
    """Returns the product of scaled A and scaled B, as the lanes hold it: float64 [lane, register].

    Args:
        a: codes, one a byte: [lane, 4, 32 / bits].
        b: codes: [lane, 2, 32 / bits].
        a_words: UE8M0 bytes [lane, 4].
        b_words: as a_words.
        step: which byte of the words; of E2M1 the first of two.
        tb: the selector of B's lanes.
        bits: of a value: E4M3 or E2M1.
    """
    depth = 32 * 8 // bits
    left, right = np.empty((ROWS, depth)), np.empty((depth, COLUMNS))
    left[a_places(bits)] = _values(a, bits)
    right[b_places(bits)] = _values(b, bits)
    used = slice(step, step + depth // 32)
    left *= np.repeat(formats.decode_ue8m0(a_words[a_scale_lanes(), used]), 32, axis=1)
    right *= np.repeat(formats.decode_ue8m0(b_words[b_scale_lanes(tb), used]), 32, axis=1).T
    return np.asarray((left @ right)[d_places()])


def _values(codes: Bytes, bits: int) -> Floats:
    return formats.decode_e4m3(codes) if bits == E4M3 else formats.E2M1_VALUES[codes]
