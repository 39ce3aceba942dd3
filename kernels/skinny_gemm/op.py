"""y = x weight^T for few rows of x and few of weight, in one launch."""

import torch

from ..extension import library

library.load("skinny_gemm")

MOST_ROWS = 16
MOST_K = 10240


def _fake(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, dependent: bool = False) -> None:
    del dependent
    torch._check(x.dim() == 2 and weight.dim() == 2, lambda: "skinny_gemm: x, weight: expected 2 dimensions")
    torch._check(x.shape[1] == weight.shape[1], lambda: "skinny_gemm: weight: expected as many columns as x has")
    expected = (x.shape[0], weight.shape[0])
    torch._check(out.shape == expected, lambda: "skinny_gemm: out: expected [rows of x, rows of weight]")


torch.library.register_fake("moet::skinny_gemm", _fake)

def skinny_gemm(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    dependent: bool = False,
) -> torch.Tensor:
    """Returns x [M, K] times weight [N, K] transposed: [M, N].

    The bits of a row of the result depend on that row of x, on weight and on K alone.

    Args:
        x: bfloat16, 1 to 16 rows; K a multiple of 8, up to 10240. Rows may lie apart, by a multiple of 8 elements.
        weight: bfloat16, as x.
        out: where to; bfloat16 or float32. Made when absent.
        out_dtype: of the result that is made.
        dependent: launch so that the kernel begins, and reads weight, before the kernel ahead of it in the stream has
            ended. Not where that kernel writes weight.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        out = x.new_empty((x.shape[0], weight.shape[0]), dtype=out_dtype)
    torch.ops.moet.skinny_gemm(x, weight, out, dependent)
    return out
