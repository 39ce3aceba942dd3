"""paged_mqa_logits and its schedule on a batch of ragged requests, in both formats of the cache."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ...common import formats
from ...paged_mqa_logits import op, reference
from ..comparison import Array, Comparison

# Keys a page, and rows of q a request; the first page is the one that is served.
FORMS = ((128, 1), (128, 2), (128, op.MOST_NEXT_N), (64, 2), (32, 2))
CONTEXTS = (9, 128, 1000, 6001)
# The multiprocessors of an RTX PRO 6000; other numbers give the same bits.
SLOTS = 188

_NAN_CODE, _FILLER = 0x7F, 0xFF


@dataclass(frozen=True)
class _Request:
    """One request: bytes of q [rows, 32, n], its scales and weights; bytes of the keys [keys, n] and their scales."""

    q: Array
    q_scales: Array
    weights: Array
    keys: Array
    key_scales: Array

    @property
    def contexts(self) -> Array:
        """How many keys each row sees: the last all, and each other one less than the row behind it."""
        return (len(self.keys) - len(self.q) + 1 + np.arange(len(self.q))).astype(np.int32)

    def oracle(self) -> tuple[Array, Array]:
        """Logits and their bounds: [rows, keys]."""
        fp8 = self.q.shape[-1] == op.HEAD_DIM
        q = formats.decode_e4m3(self.q) if fp8 else reference.mxfp4_values(self.q, self.q_scales)
        keys = reference.decode_keys(self.keys, self.key_scales)
        return reference.logits(q, self.weights, keys), reference.bound(q, self.weights, keys)


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operators on a device; yields their outputs beside the oracle's."""
    generator = np.random.default_rng(1)
    for fp8 in (True, False):
        for page, rows in FORMS:
            requests = [_random(generator, fp8, context, rows) for context in CONTEXTS]
            what = f"{'FP8' if fp8 else 'MXFP4'}, pages of {page}, {rows} rows"
            yield from _batch(generator, requests, page, what, device)


def _random(generator: np.random.Generator, fp8: bool, context: int, rows: int) -> _Request:
    width = op.HEAD_DIM if fp8 else op.HEAD_DIM // 2
    codes = [generator.integers(0, 256, shape, dtype=np.uint8) for shape in ((rows, op.HEADS, width), (context, width))]
    key_scales = generator.integers(118, 132, (context, 4), dtype=np.uint8)
    if fp8:
        for part in codes:
            part[(part & 0x7F) == _NAN_CODE] = 0x3C
        key_scales = np.exp2(generator.uniform(-6, 3, (context, 1))).astype(np.float32).view(np.uint8)
    q_scales = generator.integers(118, 132, (rows, op.HEADS, 4), dtype=np.uint8)
    weights = generator.standard_normal((rows, op.HEADS), dtype=np.float32)
    return _Request(codes[0], q_scales, weights, codes[1], key_scales)


def _batch(
    generator: np.random.Generator, requests: list[_Request], page: int, what: str, device: str
) -> Iterator[Comparison]:
    pages = [reference.write_pages(one.keys, one.key_scales, page, _FILLER) for one in requests]
    order = generator.permutation(sum(map(len, pages)))
    memory = np.empty((len(order), pages[0].shape[1]), dtype=np.uint8)
    memory[order] = np.concatenate(pages)
    tables = np.full((len(requests), max(map(len, pages))), -1, dtype=np.int32)
    for row, mine in enumerate(np.split(order, np.cumsum([len(part) for part in pages])[:-1])):
        tables[row, : len(mine)] = mine
    contexts = np.stack([one.contexts for one in requests])
    cache = torch.from_numpy(memory).to(device).view(len(order), page, 1, -1)
    lengths, table = (torch.from_numpy(values).to(device) for values in (contexts, tables))
    weights = torch.from_numpy(np.concatenate([one.weights for one in requests])).to(device)
    schedule = op.paged_mqa_logits_metadata(lengths, page, SLOTS)
    yield Comparison(f"schedule, {what}", schedule.cpu().numpy(), reference.schedule(contexts, SLOTS))
    q, q_scale = _queries(requests, device)
    out = op.paged_mqa_logits(q, q_scale, cache, weights, lengths, table, schedule, int(contexts.max()))
    found, oracles = out.double().cpu().numpy(), [one.oracle() for one in requests]
    seen = [(i, j, contexts[i, j]) for i in range(len(requests)) for j in range(contexts.shape[1])]
    yield Comparison(
        what,
        np.concatenate([found[i * contexts.shape[1] + j, :context] for i, j, context in seen]),
        np.concatenate([oracles[i][0][j, :context] for i, j, context in seen]),
        np.concatenate([oracles[i][1][j, :context] for i, j, context in seen]),
    )


def _queries(requests: list[_Request], device: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    q = torch.from_numpy(np.stack([one.q for one in requests])).to(device)
    if q.shape[-1] == op.HEAD_DIM:
        return q.view(torch.float8_e4m3fn), None
    scales = np.stack([one.q_scales for one in requests]).view(np.int32)[..., 0]
    return q, torch.from_numpy(np.ascontiguousarray(scales)).to(device)
