"""What moe_w2 computes, in plain numpy."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..common import formats, planes

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]


def x_values(codes: Bytes, scales: Bytes) -> Doubles:
    """E4M3 codes [..., K] with UE8M0 scales [..., K / 32], as float64."""
    with np.errstate(invalid="ignore"):
        return formats.decode_e4m3(codes) * np.repeat(formats.decode_ue8m0(scales), formats.BLOCK, axis=-1)


def base_values(plane: Bytes, scale_plane: Bytes, rows: int, columns: int) -> Doubles:
    """Weights [rows, columns] of a plane of codes and one of scales."""
    scales = planes.unpack_scales(scale_plane, rows, columns)
    return planes.decode(planes.unpack_codes(plane, rows, columns), scales)


def delta_values(plane: Bytes, scale_plane: Bytes, rows: int, columns: int) -> Doubles:
    """Weights [rows, columns] of a plane of nibbles and one of scales."""
    scales = planes.unpack_scales(scale_plane, rows, columns)
    return planes.decode_nibbles(planes.unpack_nibbles(plane, rows, columns), scales)


def moe_w2(x: Doubles, ids: Ints, weights: Mapping[int, Doubles], rows: int) -> Doubles:
    """Returns x times the transposed weights of the experts: [M, top, rows].

    Args:
        x: [M, K], or [M, top, K].
        ids: [M, top].
        weights: [rows, K] of each expert that has any; others' results are zero.
        rows: of the weights.
    """
    result = np.zeros((*ids.shape, rows))
    for expert in {int(expert) for expert in ids.flat} & set(weights):
        m, j = np.nonzero(ids == expert)
        result[m, j] = (x[m, j] if x.ndim == 3 else x[m]) @ weights[expert].T
    return result


def missing(ids: Ints, weights: Mapping[int, Doubles]) -> int:
    """Returns how many pairs have an expert that has no weights; an id below 0 is padding."""
    return sum(1 for expert in ids.flat if expert >= 0 and int(expert) not in weights)


def bound(x: Doubles, ids: Ints, weights: Mapping[int, Doubles], rows: int, bf16: bool = True) -> Doubles:
    """Returns how far an output may be from moe_w2(): [M, top, rows].

    fp32 sums, of which an output has fewer than 64 in a row, and for bfloat16 half a step of it.
    """
    magnitudes = {expert: np.abs(values) for expert, values in weights.items() if expert in ids}
    sums = 64 * 2.0**-24 * moe_w2(np.abs(x), ids, magnitudes, rows)
    if not bf16:
        return sums
    exact = moe_w2(x, ids, weights, rows)
    step = np.where(exact == 0, 0.0, formats.bf16_spacing(exact) * 0.5 * (1 + 2.0**-6))
    return sums * (1 + 2.0**-8) + step
