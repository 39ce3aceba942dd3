"""y = x weight^T in MXFP8 for few rows of x, in one launch; plain, and by groups."""

import torch

from ..extension import library

library.load("mxfp8_gemv")

MOST_ROWS = 64
LEAST_COLUMNS = 16
KS = (576, 1280, 2048, 4096, 5120)


def _register_fake(name: str) -> None:
    """Tells torch what an operator does to tensors without memory: nothing, if their shapes fit."""

    def fake(
        x: torch.Tensor,
        x_scale: torch.Tensor,
        weight: torch.Tensor,
        weight_scale: torch.Tensor,
        out: torch.Tensor,
        swizzled: bool,
        dependent: bool = False,
    ) -> None:
        del x_scale, weight_scale, swizzled, dependent
        torch._check(x.dim() == weight.dim(), lambda: f"{name}: weight: expected as many dimensions as x has")
        torch._check(x.shape[-1] == weight.shape[-1], lambda: f"{name}: weight: expected as many columns as x has")
        expected = (*x.shape[:-1], weight.shape[-2])
        torch._check(out.shape == expected, lambda: f"{name}: out: expected x's shape, but as wide as weight has rows")

    torch.library.register_fake(f"moet::{name}", fake)


_register_fake("mxfp8_gemv")
_register_fake("mxfp8_grouped_gemv")


def mxfp8_gemv(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    *,
    swizzled: bool,
    out: torch.Tensor | None = None,
    dependent: bool = False,
) -> torch.Tensor:
    """Returns x [M, K] times weight [N, K] transposed, bfloat16: [M, N].

    The bits of a row of the result depend on that row of x, on weight and on K alone.

    Args:
        x: float8_e4m3fn, contiguous, 1 to 64 rows; K one of KS.
        x_scale: one UE8M0 scale (uint8 or float8_e8m0fnu) a row and 32 columns of x.
        weight: as x, 16 rows or more.
        weight_scale: as x_scale.
        swizzled: the layout of both scales: F8_128x4, with its last tiles filled up, or else [rows, K / 32].
        out: where to. Made when absent.
        dependent: launch so that the kernel begins, and reads weight, before the kernel ahead of it in the stream has
            ended. Not where that kernel writes weight or its scales.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        out = x.new_empty((*x.shape[:-1], weight.shape[-2]), dtype=torch.bfloat16)
    torch.ops.moet.mxfp8_gemv(x, x_scale, weight, weight_scale, out, swizzled, dependent)
    return out


def mxfp8_grouped_gemv(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    *,
    swizzled: bool,
    out: torch.Tensor | None = None,
    dependent: bool = False,
) -> torch.Tensor:
    """Returns, of each group, x [M, G, K] times weight [G, N, K] transposed, bfloat16: [M, G, N].

    Arguments as of mxfp8_gemv. Scales are those of [M * G, K] and [G * N, K].
    """
    if out is None:
        out = x.new_empty((*x.shape[:-1], weight.shape[-2]), dtype=torch.bfloat16)
    torch.ops.moet.mxfp8_grouped_gemv(x, x_scale, weight, weight_scale, out, swizzled, dependent)
    return out
