"""What mxfp8_gemv and mxfp8_grouped_gemv compute, in plain numpy."""

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]


def values(codes: Bytes, scales: Bytes) -> Doubles:
    """E4M3 codes [..., K] with UE8M0 scales [..., K / 32], as float64."""
    with np.errstate(invalid="ignore"):
        return formats.decode_e4m3(codes) * np.repeat(formats.decode_ue8m0(scales), formats.BLOCK, axis=-1)


def mxfp8_gemv(x: Doubles, weight: Doubles) -> Doubles:
    """Returns x [M, K] times weight [N, K] transposed: [M, N]."""
    return x @ weight.T


def mxfp8_grouped_gemv(x: Doubles, weight: Doubles) -> Doubles:
    """Returns, of each group, x [M, G, K] times weight [G, N, K] transposed: [M, G, N]."""
    return np.stack([x[:, g] @ weight[g].T for g in range(weight.shape[0])], axis=1)


def bound(x: Doubles, weight: Doubles) -> Doubles:
    """Returns how far an output may be from mxfp8_gemv(): [M, N].

    fp32 sums, of which an output has fewer than 64 in a row, and half a step of bfloat16.
    """
    sums = 64 * 2.0**-24 * (np.abs(x) @ np.abs(weight).T)
    return sums + formats.bf16_spacing(mxfp8_gemv(x, weight)) * 0.5 * (1 + 2.0**-6)
