"""From a router's logits and activations to the rows that a grouped GEMM reads, in one launch."""

from typing import NamedTuple

import torch

from ..extension import library

library.load("moe_front")

TOP = 6
MOST_TOKENS = 64
MOST_EXPERTS = 384
MOST_K = 8192


class MoeFront(NamedTuple):
    """What a grouped GEMM with contiguous groups reads, and what its rows are put together with afterwards.

    R rows; a row is one of the six copies of a token. Experts follow each other, each from a multiple of the alignment
    on, and its tokens in turn. `a` and `a_scale` are left as they were in the rows between, which are padding.
    """

    a: torch.Tensor
    """float8_e4m3fn [R, K]: quantized activations."""
    a_scale: torch.Tensor
    """int32 [R, K / (4 group)], strides [1, R]: UE8M0 scales, four a word, the first in the lowest byte."""
    m_indices: torch.Tensor
    """int32 [R]: expert of a row, -1 in padding."""
    inv_perm: torch.Tensor
    """int32 [M, 6]: row of a token's copy; -1 for a token that is padding."""
    topk_weights: torch.Tensor
    """float32 [M, 6]: by which the copies are summed; 0 for a token that is padding."""
    topk_ids: torch.Tensor
    """int32 [M, 6]: experts, best first; -1 for a token that is padding."""


def rows(tokens: int, experts: int, alignment: int) -> int:
    """Returns R: enough for whatever the tokens choose.

    >>> rows(6, 384, 64)
    2304
    """
    pairs = tokens * TOP
    return -(-(pairs + min(pairs, experts) * (alignment - 1)) // alignment) * alignment


def empty(x: torch.Tensor, experts: int, alignment: int = 128, group: int = 128) -> MoeFront:
    """Returns uninitialized tensors for the result for x [M, K], where x is."""
    (m, k), r = x.shape, rows(x.shape[0], experts, alignment)
    return MoeFront(
        a=x.new_empty((r, k), dtype=torch.float8_e4m3fn),
        a_scale=x.new_empty((k // (4 * group), r), dtype=torch.int32).t(),
        m_indices=x.new_empty((r,), dtype=torch.int32),
        inv_perm=x.new_empty((m, TOP), dtype=torch.int32),
        topk_weights=x.new_empty((m, TOP), dtype=torch.float32),
        topk_ids=x.new_empty((m, TOP), dtype=torch.int32),
    )


def _fake(
    logits: torch.Tensor,
    bias: torch.Tensor,
    x: torch.Tensor,
    is_padding: torch.Tensor | None,
    token_ids: torch.Tensor | None,
    image_bias: torch.Tensor | None,
    a: torch.Tensor,
    a_scale: torch.Tensor,
    m_indices: torch.Tensor,
    inv_perm: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    alignment: int,
    group: int,
    scaling_factor: float,
    image_first: int,
    dependent: bool = False,
) -> None:
    del is_padding, token_ids, image_bias, scaling_factor, image_first, dependent
    torch._check(logits.dim() == 2 and x.dim() == 2, lambda: "moe_front: logits, x: expected 2 dimensions")
    (m, experts), k = logits.shape, x.shape[1]
    torch._check(bias.shape == (experts,), lambda: "moe_front: bias: expected as many as logits has experts")
    torch._check(x.shape[0] == m, lambda: "moe_front: x: expected as many rows as logits has")
    r = rows(m, experts, alignment)
    torch._check(a.shape == (r, k), lambda: "moe_front: a: expected [R, K]")
    torch._check(a_scale.shape == (r, k // (4 * group)), lambda: "moe_front: a_scale: expected [R, K / (4 group)]")
    torch._check(m_indices.shape == (r,), lambda: "moe_front: m_indices: expected [R]")
    for name, of_pairs in (("inv_perm", inv_perm), ("topk_weights", topk_weights), ("topk_ids", topk_ids)):
        torch._check(of_pairs.shape == (m, TOP), lambda name=name: f"moe_front: {name}: expected [M, 6]")


torch.library.register_fake("moet::moe_front", _fake)


def moe_front(
    logits: torch.Tensor,
    bias: torch.Tensor,
    x: torch.Tensor,
    *,
    alignment: int = 128,
    group: int = 128,
    scaling_factor: float = 1.0,
    is_padding: torch.Tensor | None = None,
    token_ids: torch.Tensor | None = None,
    image_bias: torch.Tensor | None = None,
    image_first: int = 0,
    out: MoeFront | None = None,
    dependent: bool = False,
) -> MoeFront:
    """Chooses six experts a token, quantizes the activations, and copies them to the experts' rows.

    A token goes to the experts with the largest sqrt(softplus(logit)) + bias; of equals, the lower one comes first, and
    NaN counts as -1e30. Weights are sqrt(softplus(logit)) over their sum, times `scaling_factor`. What belongs to a
    token, but for the rows that it gets, has bits that depend on that token alone; no bit depends on the architecture.

    Args:
        logits: float32 [M, E], 1 to 64 tokens, E a multiple of 32 up to 384; contiguous, as all that follow.
        bias: float32 [E].
        x: bfloat16 [M, K], K a multiple of 512 up to 8192; 16-byte aligned.
        alignment: rows to which an expert's are padded, 64 or 128.
        group: columns a scale, 32 or 128.
        scaling_factor: the sum of a token's weights.
        is_padding: bool [M]: tokens that go nowhere.
        token_ids: int32 or int64 [M], with `image_bias` and `image_first`.
        image_bias: float32 [E]: instead of `bias` for tokens that are part of an image.
        image_first: the first of the five ids that stand for parts of an image; 0 when none do.
        out: where to. Made when absent.
        dependent: launch so that the kernel begins, and reads the biases, before the kernel ahead of it in the stream
            has ended. Not where that kernel writes a bias.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        out = empty(x, logits.shape[-1], alignment, group)
    torch.ops.moet.moe_front(
        logits,
        bias,
        x,
        is_padding,
        token_ids,
        image_bias,
        *out,
        alignment,
        group,
        scaling_factor,
        image_first,
        dependent,
    )
    return out
