"""What skinny_gemm computes, in plain numpy."""

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Doubles = NDArray[np.float64]


def skinny_gemm(x: Doubles, weight: Doubles) -> Doubles:
    """Returns x [M, K] times weight [N, K] transposed, in float64: [M, N]."""
    return x @ weight.T


def bound(x: Doubles, weight: Doubles, bf16: bool) -> Doubles:
    """Returns how far an output may be from skinny_gemm(): [M, N].

    A sum of K products in fp32, in any order, errs by at most K roundings of what is added up; the tree of the kernel
    has fewer than 32. On top comes half a step of bfloat16 where that is the output (`bf16`).
    """
    sums = 32 * 2.0**-24 * (np.abs(x) @ np.abs(weight).T)
    return sums + (formats.bf16_spacing(skinny_gemm(x, weight)) * 0.5 * (1 + 2.0**-6) if bf16 else 0)
