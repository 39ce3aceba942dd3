"""The quantizer in plain numpy and float64: what the machine code must give, bit for bit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.common import formats, planes
from tools.experts.checkpoint.schemes import FP8_BLOCK, NVFP4_BLOCK, Matrix
from tools.experts.quantize import facts

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Halfway between the magnitudes of E2M1; a value on one takes the lower magnitude.
MIDPOINTS: Doubles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])

LEAST, MOST = -127, 127

# 6 sqrt(2) / 16, as a float64 that lies below it; at and below, log2(m / 6) rounds to -4 for a significand m.
HALFWAY = float.fromhex("0x1.0f876ccdf6cd9p-1")


@dataclass(frozen=True)
class Quantized:
    """A matrix in 4 bits, from which its 2 bits follow.

    Attributes:
        nibbles: E2M1 [rows, columns], zeros as the zero mode has them.
        scales: UE8M0 [rows, columns / 32].
        counts: what was counted.
    """

    nibbles: Bytes
    scales: Bytes
    counts: facts.Counts


def quantize(matrix: Matrix, zero_mode: str) -> Quantized:
    """Quantizes a matrix of any scheme.

    Raises ValueError, naming the tensor, for scales or weights that are NaN, infinite or (scales) negative.
    """
    if matrix.scheme == "mxfp4":
        if (matrix.scales == 255).any():
            raise ValueError(f"{matrix.name}: a scale is NaN")
        nibbles, scales = planes.split_nibbles(matrix.codes), np.asarray(matrix.scales, dtype=np.uint8)
        zero, saturated, clamped = nibbles & 7 == 0, 0, 0
        zero_blocks = int(zero.reshape(-1, formats.BLOCK).all(axis=1).sum())
    else:
        values = dequantize(matrix)
        exponents, whole = exponents_of(values)
        units = values / np.repeat(np.exp2(exponents), formats.BLOCK, axis=1)
        nibbles = snap(units)
        scales = (exponents + 127).astype(np.uint8)
        zero, saturated = values == 0, int((np.abs(units) > formats.E2M1_MAX).sum())
        clamped, zero_blocks = int((whole != exponents).sum()), int(zero.reshape(-1, formats.BLOCK).all(axis=1).sum())
    negative = nibbles >> 3 == 1
    signs = int((zero & ~negative).sum()), int((zero & negative).sum())
    alternated = facts.alternates(zero_mode, *signs)
    if alternated:
        odd = np.arange(matrix.columns, dtype=np.uint8) & 1
        nibbles = np.where(zero, odd << 3, nibbles).astype(np.uint8)
    histogram = np.bincount(nibbles.reshape(-1), minlength=16)
    counts = [*histogram, *signs, int(alternated), zero_blocks, saturated, clamped]
    return Quantized(nibbles, scales, facts.Counts.of([int(one) for one in counts]))


def dequantize(matrix: Matrix) -> Doubles:
    """The weights that a checkpoint states, [rows, columns]; exact for every scheme.

    Raises ValueError as quantize() does.
    """
    if matrix.scheme == "mxfp4":
        return planes.decode_nibbles(planes.split_nibbles(matrix.codes), np.asarray(matrix.scales, dtype=np.uint8))
    if matrix.scheme == "nvfp4":
        scales = formats.decode_e4m3(np.asarray(matrix.scales, dtype=np.uint8)) * matrix.scale_2
        of_weight = np.repeat(_checked(matrix, scales), NVFP4_BLOCK, axis=1)
        return np.asarray(formats.decode_e2m1(matrix.codes) * of_weight)
    if (matrix.codes & 0x7F == 0x7F).any():
        raise ValueError(f"{matrix.name}: a weight is NaN")
    scales = _checked(matrix, np.asarray(matrix.scales, dtype=np.float64))
    of_weight = np.repeat(np.repeat(scales, FP8_BLOCK, axis=0), FP8_BLOCK, axis=1)[: matrix.rows, : matrix.columns]
    return np.asarray(formats.decode_e4m3(matrix.codes) * of_weight)


def exponents_of(values: Doubles) -> tuple[Doubles, Doubles]:
    """Exponents [rows, columns / 32] of the scales: round(log2(amax / 6)), clamped, and before they were.

    The rounding is exact: it looks at amax's significand instead of taking a logarithm.
    """
    amax = np.abs(values).reshape(len(values), -1, formats.BLOCK).max(axis=2)
    significand, exponent = np.frexp(amax)
    whole = np.where(amax == 0, LEAST, exponent - 4.0 + (significand > HALFWAY))
    return np.clip(whole, LEAST, MOST), whole


def snap(units: Doubles) -> Bytes:
    """The nearest nibbles, ties to the lower magnitude, above 6 to 6; a zero keeps its sign."""
    magnitudes = np.searchsorted(MIDPOINTS, np.abs(units), side="left").astype(np.uint8)
    return (magnitudes | np.signbit(units).astype(np.uint8) << 3).astype(np.uint8)


def records(ones: list[Quantized], delta: str | None) -> tuple[Bytes, Bytes | None]:
    """The base slot of an expert's w1, w3, w2, and the slot of its delta ("fp4", "quintal", None for no delta)."""
    base = [
        part
        for one in ones
        for part in (planes.pack_codes(planes.to_codes(one.nibbles)), planes.pack_scales(one.scales))
    ]
    if delta is None:
        return np.concatenate(base), None
    pack = planes.pack_nibbles if delta == "fp4" else planes.pack_quintal
    return np.concatenate(base), np.concatenate([pack(one.nibbles) for one in ones])


def _checked(matrix: Matrix, scales: Doubles) -> Doubles:
    if not (np.isfinite(scales) & ~np.signbit(scales)).all():
        raise ValueError(f"{matrix.name}: a scale is NaN, infinite or negative")
    return scales
