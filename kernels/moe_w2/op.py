"""Products of rows with the 2-bit or FP4 weights of the experts that they chose, in one launch."""

from typing import NamedTuple

import torch

from ..extension import library

library.load("moe_w2")

MOST_ROWS = 16
MOST_TOP = 8
MOST_K = 7168
UNIT_N, UNIT_K = 16, 64


class Slots(NamedTuple):
    """Weights of some experts, in slots; of a slot one matrix [N, K], or two of the same shape (w1 and w3)."""

    planes: torch.Tensor
    """uint8 [slots, parts, N * K / 4] of codes, N * K / 2 of nibbles, ordered as in kernels/common/planes.py."""
    scales: torch.Tensor | None
    """UE8M0 (uint8 or float8_e8m0fnu) [slots, parts, N * K / 32]; None of a delta that has those of the base."""
    table: torch.Tensor
    """int32 [E]: the slot of each expert; -1, or any number that is no slot, where it has none."""


def _fake(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    topk_ids: torch.Tensor,
    planes: torch.Tensor,
    scales: torch.Tensor,
    table: torch.Tensor,
    delta_planes: torch.Tensor | None,
    delta_scales: torch.Tensor | None,
    delta_table: torch.Tensor | None,
    out: torch.Tensor,
    missing: torch.Tensor,
    dependent: bool = False,
    routed: bool = False,
) -> None:
    del x_scale, scales, table, delta_scales, delta_table, dependent, routed
    torch._check(topk_ids.dim() == 2, lambda: "moe_w2: topk_ids: expected 2 dimensions")
    leading = x.shape[:-1]
    torch._check(leading in (topk_ids.shape, topk_ids.shape[:1]), lambda: "moe_w2: x: expected topk_ids' rows or pairs")
    torch._check(out.dim() == 3 and out.shape[:2] == topk_ids.shape, lambda: "moe_w2: out: expected topk_ids' pairs")
    values = x.shape[-1] * out.shape[2]
    torch._check(planes.shape[1] * planes.shape[2] * 4 == values, lambda: "moe_w2: planes: expected out's N by x's K")
    if delta_planes is not None:
        size = delta_planes.shape[1] * delta_planes.shape[2] * 2
        torch._check(size == values, lambda: "moe_w2: delta_planes: expected out's N by x's K")
    torch._check(missing.numel() == 1, lambda: "moe_w2: missing: expected a counter")


torch.library.register_fake("moet::moe_w2", _fake)


def moe_w2(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    topk_ids: torch.Tensor,
    base: Slots,
    delta: Slots | None = None,
    *,
    missing: torch.Tensor,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    dependent: bool = False,
    routed: bool = False,
) -> torch.Tensor:
    """Returns x times the transposed weights of its experts: [M, top, parts * N], the parts beside each other.

    The bits of a pair's result depend on its x, on its expert's weights and on K alone. A pair whose expert has no
    weights, or whose id is -1 (padding), has a result of zero.

    Args:
        x: float8_e4m3fn [M, K], or [M, top, K] where every pair of row and expert has its own; 1 to 16 rows, K a
            multiple of 64 up to 7168. Rows may lie apart by a multiple of 16 bytes.
        x_scale: UE8M0 (uint8 or float8_e8m0fnu), one for 32 columns of x: x's shape, but K / 32 wide.
        topk_ids: int32 [M, top], up to 8 experts a row. An expert may be a row's twice.
        base: 2-bit codes.
        delta: FP4, which stand in for the base's where an expert has a slot of both; with scales of its own, also where
            it has no other. Without, an expert needs its slot of the base.
        missing: int32 [1], which is increased by the pairs that have an expert, and the expert no weights.
        out: where to, bfloat16 or float32. Made, of `out_dtype`, when absent.
        out_dtype: bfloat16 or float32.
        dependent: launch so that the kernel begins before the kernel ahead of it in the stream has ended. Not where
            that kernel writes weights.
        routed: topk_ids and the tables were complete before the kernel ahead in the stream began: weights are then read
            before that one has ended.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        # Of shapes without it the operator says what is wrong.
        has_rows = base.planes.dim() == 3 and x.dim() > 0 and x.shape[-1] > 0
        rows = base.planes.shape[1] * base.planes.shape[2] * 4 // x.shape[-1] if has_rows else 0
        out = x.new_empty((*topk_ids.shape, rows), dtype=out_dtype)
    torch.ops.moet.moe_w2(
        x,
        x_scale,
        topk_ids,
        base.planes,
        base.scales,
        base.table,
        None if delta is None else delta.planes,
        None if delta is None else delta.scales,
        None if delta is None else delta.table,
        out,
        missing,
        dependent,
        routed,
    )
    return out
