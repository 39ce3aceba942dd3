"""When a small bfloat16 layer takes skinny_gemm, and why not where it does not."""

import torch

from ..skinny_gemm.op import MOST_K, MOST_ROWS, skinny_gemm

# Elements of 16 bytes, which the kernel loads at once.
_UNIT = 8


def refusal(x: torch.Tensor, weight: torch.Tensor, *, sm120: bool, batch_invariant: bool) -> str | None:
    """Says where another GEMM is to compute x weight^T; None where run() can.

    The answer names the layer by its shape where that is what does not fit, and never the rows of x: a log that writes
    each text once has one line a reason.

    Args:
        x: [M, K].
        weight: [N, K].
        sm120: whether the device has compute capability 12.0.
        batch_invariant: whether a row's result may not depend on how many there are.
    """
    layer = f"layer {list(weight.shape)}"
    if not sm120:
        return "the device is not of compute capability 12.0"
    if batch_invariant:
        return "batch invariance is asked for, which larger batches would break"
    if problem := _misfit(weight):
        return f"{layer} has a weight {problem}"
    if not 1 <= len(x) <= MOST_ROWS:
        return f"a batch has no row, or more than {MOST_ROWS}"
    if problem := _misfit(x):
        return f"{layer} gets an activation {problem}"
    return None


def run(x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype, *, dependent: bool) -> torch.Tensor:
    """Returns x [M, K] times weight [N, K] transposed: [M, N], where refusal() has nothing to say.

    Args:
        x: [M, K].
        weight: [N, K].
        out_dtype: bfloat16 or float32.
        dependent: whether the launch is dependent: where a kernel is right ahead of it in the stream.
    """
    return skinny_gemm(x, weight, out_dtype=out_dtype, dependent=dependent)


def _misfit(tensor: torch.Tensor) -> str | None:
    """What is wrong with an operand [rows, K]."""
    if tensor.dtype != torch.bfloat16:
        return f"of {tensor.dtype}, not torch.bfloat16"
    if tensor.dim() != 2:
        return f"of {tensor.dim()} dimensions, not 2"
    rows, k = tensor.shape
    if k % _UNIT or not _UNIT <= k <= MOST_K:
        return f"of {k} columns, not a multiple of {_UNIT} up to {MOST_K}"
    apart = tensor.stride(0) if rows > 1 else k
    if tensor.stride(1) != 1 or apart % _UNIT or apart < k or tensor.data_ptr() % 16:
        return "whose rows do not begin at multiples of 16 bytes"
    return None
