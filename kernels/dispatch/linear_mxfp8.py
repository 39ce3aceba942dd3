"""When a dense MXFP8 layer takes mxfp8_gemv, and why not where it does not."""

import torch

from ..common import scale_layouts
from ..mxfp8_gemv.op import KS, LEAST_COLUMNS, mxfp8_gemv

# The kernel takes more; from here on a GEMM with tiles is expected to be as fast.
MOST_ROWS = 16


def refusal(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    sm120: bool,
    batch_invariant: bool,
) -> str | None:
    """Says where another GEMM is to compute x weight^T; None where run() can.

    The answer names the layer by its shape where that is what does not fit, and never the rows of x: a log that writes
    each text once has one line a reason.

    Args:
        x: [M, K].
        x_scale: its scales, as the layer's activation has them.
        weight: [N, K].
        weight_scale: its scales.
        out_dtype: of the result that the layer wants.
        sm120: whether the device has compute capability 12.0.
        batch_invariant: whether a row's result may not depend on how many there are.
    """
    n, k = weight.shape
    layer = f"layer [{n}, {k}]"
    if not sm120:
        return "the device is not of compute capability 12.0"
    if batch_invariant:
        return "batch invariance is asked for, which larger batches would break"
    if out_dtype != torch.bfloat16:
        return f"{layer} wants {out_dtype}, not torch.bfloat16"
    if k not in KS:
        return f"{layer} has another K than {', '.join(map(str, KS))}"
    if n < LEAST_COLUMNS:
        return f"{layer} has fewer than {LEAST_COLUMNS} rows"
    if problem := _misfit(weight, weight_scale):
        return f"{layer} has a weight {problem}"
    if not 1 <= len(x) <= MOST_ROWS:
        return f"a batch has no row, or more than {MOST_ROWS}"
    if problem := _misfit(x, x_scale):
        return f"{layer} gets an activation {problem}"
    return None


def run(x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """Returns x [M, K] times weight [N, K] transposed, bfloat16: [M, N], where refusal() has nothing to say.

    The launch is dependent: nothing writes weights while a model runs.
    """
    return mxfp8_gemv(x, x_scale, weight, weight_scale, swizzled=True, dependent=True)


def _misfit(values: torch.Tensor, scales: torch.Tensor) -> str | None:
    """What is wrong with an operand [rows, K] and its scales, F8_128x4 in whole tiles."""
    if values.dtype != torch.float8_e4m3fn:
        return f"of {values.dtype}, not torch.float8_e4m3fn"
    if not values.is_contiguous() or values.data_ptr() % 16:
        return "that is not contiguous from a multiple of 16 bytes on"
    rows, columns = scale_layouts.padded(values.shape[0], values.shape[1] // 32)
    if scales.dtype != torch.uint8 or not scales.is_contiguous() or scales.numel() != rows * columns:
        return "whose scales are not torch.uint8 in whole tiles of 128 rows by 4"
    return None
