"""wo_a, a projection by groups, kept in MXFP8: by mxfp8_grouped_gemv for few rows, by another GEMM for more.

Shapes: M rows, G groups, x [M, G, K], weight [G, N, K], result [M, G, N].

Activations are as vLLM's inverse-RoPE quantizer leaves them (vllm/models/deepseek_v4/common/ops): groups of rows,
memory [G, M, K], and scales in words of four, int32 [M, G, K / 128], of which byte j of word w is that of the 32
columns from 128 w + 32 j on; rows lie beside each other. Weights have scales in F8_128x4, each group in tiles of its
own.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from ..common import scale_layouts
from ..mxfp8_gemv.op import KS, MOST_ROWS, mxfp8_grouped_gemv

# x [M, K], its scales, weight [N, K], its scales, both in F8_128x4: x weight^T in bfloat16, [M, N].
Gemm = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def refusal(groups: int | None, rows: int, k: int, *, sm120: bool, batch_invariant: bool) -> str | None:
    """Says why a layer is not to be kept in MXFP8; None where project() can compute it.

    Args:
        groups: G; None or 0 where the layer has no groups.
        rows: G N.
        k: K.
        sm120: whether the device has compute capability 12.0.
        batch_invariant: whether a row's result may not depend on how many there are.
    """
    layer = f"layer [{rows}, {k}] of {groups} groups"
    if not sm120:
        return "the device is not of compute capability 12.0"
    if batch_invariant:
        return "batch invariance is asked for, which larger batches would break"
    if not groups or rows % (groups * scale_layouts.ROWS):
        return f"{layer} has groups whose rows are no multiple of {scale_layouts.ROWS}"
    if k not in KS or k % 128:
        return f"{layer} has another K than {', '.join(str(known) for known in KS if known % 128 == 0)}"
    return None


def swizzled(words: torch.Tensor) -> torch.Tensor:
    """From words of four scales, int32 [M, G, K / 128] in any strides, to F8_128x4, uint8 [G, bytes of a group]."""
    m, groups, columns = words.shape
    rows = -(-m // scale_layouts.ROWS) * scale_layouts.ROWS
    by_row = functional.pad(words.permute(1, 2, 0), (0, rows - m))
    tiles = by_row.reshape(groups, columns, -1, 4, 32).permute(0, 2, 1, 4, 3)
    return tiles.reshape(groups, -1).view(torch.uint8)


def project(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, gemm: Gemm
) -> torch.Tensor:
    """Returns, of each group, x times weight transposed, bfloat16: [M, G, N], contiguous.

    Args:
        x: float8_e4m3fn [M, G, K].
        x_scale: int32 [M, G, K / 128].
        weight: float8_e4m3fn [G, N, K].
        weight_scale: uint8 [G, N K / 32].
        gemm: what computes a group where there are more rows than the kernel takes, and while torch.compile traces.
    """
    if len(x) <= MOST_ROWS and not torch.compiler.is_compiling():
        return mxfp8_grouped_gemv(x, x_scale, weight, weight_scale, swizzled=True, packed=True, dependent=True)
    scales = swizzled(x_scale)
    groups = [gemm(x[:, g].contiguous(), scales[g], weight[g], weight_scale[g]) for g in range(x.shape[1])]
    return torch.stack(groups, dim=1)
