"""Times skinny_gemm on this GPU, beside F.linear and beside what reading the weights must take.

usage: python3 -m kernels.skinny_gemm.bench [--json FILE]
"""

from collections.abc import Callable

import torch
import torch.nn.functional as functional

from kernels.skinny_gemm.op import skinny_gemm
from kernels.testing import gpu, table

# The draft layers' router has 128 experts; the compressor pools with a gate or, at ratio 1, without one.
SHAPES = {
    "weights_proj": (32, 5120),
    "wk": (128, 512),
    "draft router": (128, 5120),
    "router": (384, 5120),
    "compressor wkv": (512, 5120),
    "compressor wkv, wgate": (1024, 5120),
}
ROWS = (1, 6, 8, 16)


def row(name: str, m: int, weights: torch.Tensor, rate: float) -> table.Row:
    """Measures one shape with `m` rows of x, rotating among `weights` [sets, N, K]."""
    count, n, k = weights.shape
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    floor = 2 * (n * k + m * k + m * n) / rate * 1e6

    def timed(function: Callable[[torch.Tensor], object]) -> float:
        return gpu.microseconds(lambda i: function(weights[i % count]), max(count, 200))

    plain = timed(lambda weight: skinny_gemm(x, weight, out=out))
    dependent = timed(lambda weight: skinny_gemm(x, weight, out=out, dependent=True))
    linear = timed(lambda weight: functional.linear(x, weight))
    return {
        "shape": f"{name} {n}x{k}",
        "M": m,
        "floor us": floor,
        "us": plain,
        "share": floor / plain,
        "dependent us": dependent,
        "dependent share": floor / dependent,
        "F.linear us": linear,
        "F.linear / dependent": linear / dependent,
    }


def rows(rate: float) -> list[table.Row]:
    """Measures every shape; `rate` is what a copy moves, in bytes a second."""
    result = []
    for name, (n, k) in SHAPES.items():
        weights = torch.randn(gpu.sets(2 * n * k), n, k, device="cuda", dtype=torch.bfloat16)
        result += [row(name, m, weights, rate) for m in ROWS]
    return result


if __name__ == "__main__":
    table.main(__doc__, rows)
