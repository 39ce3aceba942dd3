"""When moe_front stands in for routing, quantization and permutation, and why not where it does not."""

from typing import NamedTuple

import torch

from ..moe_front import op

ALIGNMENTS = (64, 128)

# Experts and columns come in such steps.
_EXPERTS_UNIT, _COLUMNS_UNIT = 32, 512


class Rows(NamedTuple):
    """What is known of the experts' rows after run(), beside what it was told to write."""

    a_scale: torch.Tensor
    """int32 [R, K / 512], strides [1, R]: UE8M0 scales of 128 columns, four a word."""
    m_indices: torch.Tensor
    """int32 [R]: expert of a row, -1 in padding."""
    inv_perm: torch.Tensor
    """int32 [M, 6]: row of a token's copy."""


def refusal(
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    x: torch.Tensor,
    *,
    top: int,
    alignment: int,
    sm120: bool,
    batch_invariant: bool,
) -> str | None:
    """Says where other kernels are to route, quantize and permute; None where run() can.

    The answer never names the tokens of a batch: a log that writes each text once has one line a reason.

    Args:
        logits: [M, E], the router's.
        bias: [E], what is added to the scores for the choice.
        x: [M, K], activations.
        top: experts a token.
        alignment: rows to which the grouped GEMM wants an expert's padded.
        sm120: whether the device has compute capability 12.0, for which the library has machine code.
        batch_invariant: whether a row's result may not depend on how many there are.
    """
    if not sm120:
        return "the device is not of compute capability 12.0"
    if batch_invariant:
        return "batch invariance is asked for, which larger batches would break"
    if top != op.TOP:
        return f"a token goes to {top} experts, not {op.TOP}"
    if alignment not in ALIGNMENTS:
        return f"rows are aligned to {alignment}, not {' or '.join(map(str, ALIGNMENTS))}"
    if problem := _misfit_logits(logits, bias) or _misfit_activations(x):
        return problem
    if not 1 <= len(x) <= op.MOST_TOKENS or len(x) != len(logits):
        return f"a batch has no token, or more than {op.MOST_TOKENS}, or not a row of logits for each"
    return None


def run(
    logits: torch.Tensor,
    bias: torch.Tensor,
    x: torch.Tensor,
    *,
    alignment: int,
    scaling_factor: float,
    is_padding: torch.Tensor | None,
    token_ids: torch.Tensor | None,
    image_bias: torch.Tensor | None,
    image_first: int,
    a: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
) -> Rows:
    """Routes, quantizes by 128 columns and permutes in one launch, where refusal() has nothing to say.

    The launch is dependent: nothing writes a bias while a model runs.

    Args:
        logits: float32 [M, E].
        bias: float32 [E].
        x: bfloat16 [M, K].
        alignment: as for refusal().
        scaling_factor: the sum of a token's weights.
        is_padding: bool [M]: tokens that go nowhere; None when all go somewhere.
        token_ids: int32 or int64 [M]; None without image_bias.
        image_bias: float32 [E]: instead of bias for tokens that are part of an image; None when there are none.
        image_first: the first id of such tokens.
        a: float8_e4m3fn [R, K], gets the quantized rows; padding stays as it is.
        topk_weights: float32 [M, 6], gets the weights.
        topk_ids: int32 [M, 6], gets the experts.

    Raises RuntimeError naming the argument that does not fit.
    """
    rows = len(a)
    made = Rows(
        a_scale=x.new_empty((x.shape[1] // _COLUMNS_UNIT, rows), dtype=torch.int32).t(),
        m_indices=x.new_empty((rows,), dtype=torch.int32),
        inv_perm=torch.empty_like(topk_ids),
    )
    with_images = image_bias is not None and image_first > 0
    op.moe_front(
        logits,
        bias,
        x,
        alignment=alignment,
        group=128,
        scaling_factor=scaling_factor,
        is_padding=is_padding,
        token_ids=token_ids if with_images else None,
        image_bias=image_bias if with_images else None,
        image_first=image_first if with_images else 0,
        out=op.MoeFront(a, made.a_scale, made.m_indices, made.inv_perm, topk_weights, topk_ids),
        dependent=True,
    )
    return made


def _misfit_logits(logits: torch.Tensor, bias: torch.Tensor | None) -> str | None:
    if bias is None:
        return "the router has no bias"
    if logits.dtype != torch.float32 or bias.dtype != torch.float32:
        return f"logits are {logits.dtype} and the bias {bias.dtype}, not both float32"
    if logits.dim() != 2 or not logits.is_contiguous() or not bias.is_contiguous():
        return "logits or bias are not contiguous, or logits have no two dimensions"
    experts = logits.shape[1]
    if experts % _EXPERTS_UNIT or not _EXPERTS_UNIT <= experts <= op.MOST_EXPERTS or bias.shape != (experts,):
        return f"there are {experts} experts and {bias.numel()} in the bias"
    return None


def _misfit_activations(x: torch.Tensor) -> str | None:
    if x.dtype != torch.bfloat16:
        return f"activations are {x.dtype}, not bfloat16"
    if x.dim() != 2 or not x.is_contiguous() or x.data_ptr() % 16:
        return "activations are not contiguous from an address that is a multiple of 16"
    k = x.shape[1]
    if k % _COLUMNS_UNIT or not _COLUMNS_UNIT <= k <= op.MOST_K:
        return f"activations have {k} columns, not a multiple of {_COLUMNS_UNIT} up to {op.MOST_K}"
    return None
