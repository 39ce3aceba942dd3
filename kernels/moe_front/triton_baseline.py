"""The same front in Triton, for the bench: one launch chooses, another quantizes and copies."""

import torch
import triton
import triton.language as tl

from kernels.moe_front.op import MoeFront


@triton.jit  # type: ignore[untyped-decorator]
def _choose(  # type: ignore[no-untyped-def]
    logits, bias, topk_ids, topk_weights, experts, padded: tl.constexpr
):
    m, expert, slots = tl.program_id(0), tl.arange(0, padded), tl.arange(0, 8)
    inside = expert < experts
    logit = tl.load(logits + m * experts + expert, mask=inside, other=0.0)
    score = tl.sqrt(tl.where(logit > 20.0, logit, tl.log(1.0 + tl.exp(logit))))
    left = tl.where(inside, score + tl.load(bias + expert, mask=inside, other=0.0), -float("inf"))
    ids, weights = tl.zeros((8,), tl.int32), tl.zeros((8,), tl.float32)
    for slot in tl.static_range(6):
        best = tl.min(tl.where(left == tl.max(left, axis=0), expert, padded), axis=0)
        ids = tl.where(slots == slot, best, ids)
        weights = tl.where(slots == slot, tl.sum(tl.where(expert == best, score, 0.0), axis=0), weights)
        left = tl.where(expert == best, -float("inf"), left)
    tl.store(topk_ids + m * 6 + slots, ids, mask=slots < 6)
    tl.store(topk_weights + m * 6 + slots, weights / tl.sum(weights, axis=0), mask=slots < 6)


@triton.jit  # type: ignore[untyped-decorator]
def _copy(  # type: ignore[no-untyped-def]
    x, topk_ids, a, a_scale, m_indices, inv_perm, tokens, k, r,
    alignment: tl.constexpr, group: tl.constexpr, piece: tl.constexpr, pairs: tl.constexpr, padded: tl.constexpr,
):  # fmt: skip
    m, column = tl.program_id(1), tl.program_id(0) * piece
    pair, expert = tl.arange(0, pairs), tl.arange(0, padded)
    ids = tl.load(topk_ids + pair, mask=pair < 6 * tokens, other=-1)
    counts = tl.sum((ids[:, None] == expert[None, :]).to(tl.int32), axis=0)
    chosen = (counts > 0).to(tl.int32)
    rank = tl.cumsum(chosen, axis=0) - chosen

    groups: tl.constexpr = piece // group
    at = tl.arange(0, groups)[:, None] * group + tl.arange(0, group)[None, :]
    values = tl.load(x + m * k + column + at).to(tl.float32)
    largest = tl.max(tl.abs(values), axis=1) / 448.0
    bits = largest.to(tl.int32, bitcast=True)
    scale = tl.maximum((bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32), 94)
    inverse = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    codes = (values * inverse[:, None]).to(tl.float8e4nv)
    words = tl.sum(tl.reshape(scale, (groups // 4, 4)) << (8 * tl.arange(0, 4))[None, :], axis=1)
    word = column // (4 * group) + tl.arange(0, groups // 4)
    for slot in tl.static_range(6):
        mine = tl.load(topk_ids + m * 6 + slot)
        before = tl.sum(((ids == mine) & (pair < m * 6)).to(tl.int32), axis=0)
        row = tl.sum(tl.where(expert == mine, rank, 0), axis=0) * alignment + before
        tl.store(a + row.to(tl.int64) * k + column + at, codes)
        tl.store(a_scale + word * r + row, words)
        if column == 0:
            tl.store(inv_perm + m * 6 + slot, row)

    blocks = tl.num_programs(0) * tl.num_programs(1)
    for tile in range(m * tl.num_programs(0) + tl.program_id(0), r // alignment, blocks):
        here = (chosen > 0) & (rank == tile)
        count = tl.sum(tl.where(here, counts, 0), axis=0)
        rows = tl.arange(0, alignment)
        tl.store(
            m_indices + tile * alignment + rows,
            tl.where(rows < count, tl.sum(tl.where(here, expert, 0), axis=0), -1),
        )


def moe_front(logits: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, alignment: int, out: MoeFront) -> None:
    """Writes to `out` what op.moe_front does for group 128; K is a multiple of 1024."""
    (m, experts), k, piece = logits.shape, x.shape[1], 1024
    padded, pairs = triton.next_power_of_2(experts), triton.next_power_of_2(6 * m)
    _choose[(m,)](logits, bias, out.topk_ids, out.topk_weights, experts, padded, num_warps=1)
    _copy[(k // piece, m)](
        x, out.topk_ids, out.a, out.a_scale, out.m_indices, out.inv_perm, m, k, out.a.shape[0],
        alignment, 128, piece, pairs, padded, num_warps=4,
    )  # fmt: skip
