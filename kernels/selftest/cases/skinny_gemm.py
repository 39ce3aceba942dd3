"""skinny_gemm at the shapes that the model has, and where the result is known to the bit."""

from collections.abc import Iterator

import numpy as np
import torch

from ...common import formats
from ...skinny_gemm import op, reference
from ..comparison import Array, Comparison

# [N, K] of the indexer's weights_proj and wk, and of a router.
SHAPES = ((32, 5120), (128, 512), (384, 5120))
ROWS = (1, 6, 16)


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operator on a device; yields its outputs beside the oracle's."""
    generator = np.random.default_rng(1)
    for n, k in SHAPES:
        x, weight = (_normal(generator, rows, k) for rows in (op.MOST_ROWS, n))
        for dtype in (torch.bfloat16, torch.float32):
            exact = reference.skinny_gemm(x, weight)
            bound = reference.bound(x, weight, dtype == torch.bfloat16)
            for m in ROWS:
                found = _run(x[:m], weight, device, dtype, dependent=m == 6)
                what = f"{n}x{k}, M={m}, {str(dtype).removeprefix('torch.')}"
                yield Comparison(what, found, exact[:m], bound[:m])
        # Sums of small integers have no rounding, in any order.
        x, weight = (generator.integers(-8, 9, (rows, k)).astype(np.float64) for rows in (op.MOST_ROWS, n))
        found = _run(x, weight, device, torch.float32)
        yield Comparison(f"{n}x{k}, integers", found, reference.skinny_gemm(x, weight))


def _normal(generator: np.random.Generator, rows: int, columns: int) -> Array:
    return formats.round_bf16(generator.standard_normal((rows, columns), dtype=np.float32)).astype(np.float64)


def _run(x: Array, weight: Array, device: str, dtype: torch.dtype, dependent: bool = False) -> Array:
    x_there, weight_there = (torch.from_numpy(values).bfloat16().to(device) for values in (x, weight))
    out = op.skinny_gemm(x_there, weight_there, out_dtype=dtype, dependent=dependent)
    return np.asarray(out.double().cpu().numpy())
