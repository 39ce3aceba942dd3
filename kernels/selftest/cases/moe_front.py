"""moe_front on batches of a decode step: every output is the oracle's to the bit."""

from collections.abc import Iterator

import numpy as np
import torch

from ...common import formats
from ...moe_front import op, reference
from ..comparison import Array, Comparison

EXPERTS, K, GROUP = 384, 5120, 128
TOKENS = (1, 6, 16, 64)
ALIGNMENTS = (64, 128)


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operator on a device; yields its outputs beside the oracle's."""
    generator = np.random.default_rng(1)
    bias = generator.standard_normal(EXPERTS, dtype=np.float32) * np.float32(0.3)
    for tokens in TOKENS:
        logits = 3 * generator.standard_normal((tokens, EXPERTS), dtype=np.float32)
        magnitudes = np.exp2(generator.integers(-8, 9, (tokens, K // 32))).repeat(32, axis=1)
        x = formats.round_bf16((generator.standard_normal((tokens, K)) * magnitudes).astype(np.float32))
        for alignment in ALIGNMENTS:
            yield from _batch(logits, bias, x, alignment, device)


def _batch(logits: Array, bias: Array, x: Array, alignment: int, device: str) -> Iterator[Comparison]:
    there = [torch.from_numpy(values).to(device) for values in (logits, bias, x)]
    dependent = len(x) == 6
    out = op.moe_front(there[0], there[1], there[2].bfloat16(), alignment=alignment, group=GROUP, dependent=dependent)
    ids, weights = reference.route(logits, bias)
    places = reference.place(ids, EXPERTS, alignment)
    codes, scales = reference.quantize(x, GROUP)
    tokens, slots = np.nonzero(ids >= 0)
    # Rows of padding are nobody's.
    rows = places.inv_perm[tokens, slots]
    found = {
        "a": out.a.view(torch.uint8).cpu().numpy()[rows],
        "a_scale": out.a_scale.cpu().numpy()[rows],
        "m_indices": out.m_indices.cpu().numpy(),
        "inv_perm": out.inv_perm.cpu().numpy(),
        "topk_weights": out.topk_weights.cpu().numpy(),
        "topk_ids": out.topk_ids.cpu().numpy(),
    }
    expected: tuple[Array, ...] = (codes[tokens], reference.words(scales)[tokens], *places, weights, ids)
    for (name, ours), theirs in zip(found.items(), expected, strict=True):
        yield Comparison(f"{name}, M={len(x)}, alignment {alignment}", ours, theirs)
