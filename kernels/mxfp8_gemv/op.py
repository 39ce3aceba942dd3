"""y = x weight^T in MXFP8 for few rows of x, in one launch; plain, and by groups."""

import torch

from ..extension import library

library.load("mxfp8_gemv")

MOST_ROWS = 64
LEAST_COLUMNS = 16
KS = (288, 576, 1024, 1152, 1280, 2048, 2304, 4096, 5120, 8192)


def _check_shapes(name: str, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """All that an operator does to tensors without memory: it refuses those whose shapes do not fit."""
    torch._check(x.dim() == weight.dim(), lambda: f"{name}: weight: expected as many dimensions as x has")
    torch._check(x.shape[-1] == weight.shape[-1], lambda: f"{name}: weight: expected as many columns as x has")
    expected = (*x.shape[:-1], weight.shape[-2])
    torch._check(out.shape == expected, lambda: f"{name}: out: expected x's shape, but as wide as weight has rows")


def _fake(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out: torch.Tensor,
    swizzled: bool,
    dependent: bool = False,
) -> None:
    del x_scale, weight_scale, swizzled, dependent
    _check_shapes("mxfp8_gemv", x, weight, out)


def _grouped_fake(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out: torch.Tensor,
    swizzled: bool,
    packed: bool = False,
    dependent: bool = False,
) -> None:
    del x_scale, weight_scale, swizzled, packed, dependent
    _check_shapes("mxfp8_grouped_gemv", x, weight, out)


torch.library.register_fake("moet::mxfp8_gemv", _fake)
torch.library.register_fake("moet::mxfp8_grouped_gemv", _grouped_fake)


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
        x: float8_e4m3fn, 1 to 64 rows, which may lie apart by a multiple of 16; K one of KS.
        x_scale: one UE8M0 scale (uint8 or float8_e8m0fnu) a row and 32 columns of x.
        weight: float8_e4m3fn, contiguous, 16 rows or more.
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
    packed: bool = False,
    out: torch.Tensor | None = None,
    dependent: bool = False,
) -> torch.Tensor:
    """Returns, of each group, x [M, G, K] times weight [G, N, K] transposed, bfloat16: [M, G, N].

    The bits of a row of the result depend on that row and group of x, on weight and on K alone.

    Args:
        x: float8_e4m3fn, 1 to 64 rows; K one of KS. Rows and groups may lie apart by a multiple of 16, in either order:
            [G, M, K] transposed is what vLLM's fused inverse-RoPE quantizer makes.
        x_scale: one UE8M0 scale (uint8 or float8_e8m0fnu) a row and 32 columns of x, as of a matrix [M * G, K]; or
            packed.
        weight: float8_e4m3fn, contiguous; 16 rows a group or more.
        weight_scale: as x_scale, of a matrix [G * N, K].
        swizzled: the layout of weight_scale, and of x_scale unless packed: F8_128x4, with its last tiles filled up, or
            else plain, a row after the other.
        packed: x_scale is that quantizer's: int32 [M, G, K / 128], a word of four scales for 128 columns, the first in
            the lowest byte; strides (1, at least M, at least M).
        out: where to. Made when absent.
        dependent: as of mxfp8_gemv.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        out = x.new_empty((*x.shape[:-1], weight.shape[-2]), dtype=torch.bfloat16)
    torch.ops.moet.mxfp8_grouped_gemv(x, x_scale, weight, weight_scale, out, swizzled, packed, dependent)
    return out
