"""moe_w2 at the shapes that models have on eight cards, in every mixture of tiers, and where the result is exact."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ...common import formats, planes
from ...moe_w2 import op, reference
from ..comparison import Array, Comparison

# Parts, N and K of w1 with w3 and of w2, of DeepSeek-V4-Flash and GLM-5.2; few of their experts.
SHAPES = ((2, 256, 4096), (1, 4096, 256), (2, 256, 6144), (1, 6144, 256))
# Widths that others have, whole or in shards, with few rows of weights.
OTHER_KS, OTHER_N = (5120, 7168, 2048, 2304, 1152, 576), 64
ROWS = (1, 6, op.MOST_ROWS)
EXPERTS = 8

_ONE = 127


@dataclass(frozen=True)
class _Tier:
    """Codes (0 to 3) or nibbles [slots, parts, N, K], scales [slots, parts, N, K / 32], the experts' slots."""

    values: Array
    scales: Array
    table: Array
    is_delta: bool

    def weights(self, expert: int) -> Array:
        """An expert's [parts * N, K]."""
        decode = planes.decode_nibbles if self.is_delta else planes.decode
        slot = self.table[expert]
        decoded = decode(self.values[slot], self.scales[slot])
        return decoded.reshape(-1, decoded.shape[-1])

    def on(self, device: str) -> op.Slots:
        pack = planes.pack_nibbles if self.is_delta else planes.pack_codes
        parts = (pack(self.values), planes.pack_scales(self.scales), self.table)
        return op.Slots(*(torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts))


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operator on a device; yields its outputs beside the oracle's."""
    generator = np.random.default_rng(1)
    for parts, n, k in (*SHAPES, *((1, OTHER_N, k) for k in OTHER_KS)):
        yield from _rounded(generator, parts, n, k, device)
    for k in (4096, 5120, 576):
        yield from _exact(generator, k, device)


def _tiers(generator: np.random.Generator, parts: int, n: int, k: int) -> tuple[_Tier, _Tier]:
    """The base has experts 0 to 4, the delta 3 to 5; expert 6 and 7 are in neither."""
    base_table = np.array([2, 0, 4, 1, 3, -1, -1, -1], dtype=np.int32)
    delta_table = np.array([-1, -1, -1, 1, 2, 0, -1, -1], dtype=np.int32)
    made = []
    for slots, kinds, table in ((5, 4, base_table), (3, 16, delta_table)):
        values = generator.integers(0, kinds, (slots, parts, n, k), dtype=np.uint8)
        scales = generator.integers(116, 130, (slots, parts, n, k // 32), dtype=np.uint8)
        made.append(_Tier(values, scales, table, kinds == 16))
    return made[0], made[1]


def _weights(base: _Tier, delta: _Tier | None) -> dict[int, Array]:
    weights = {expert: base.weights(expert) for expert in range(EXPERTS) if base.table[expert] >= 0}
    if delta is not None:
        weights |= {expert: delta.weights(expert) for expert in range(EXPERTS) if delta.table[expert] >= 0}
    return weights


def _ids(generator: np.random.Generator, rows: int, top: int) -> Array:
    ids = np.stack([generator.permutation(EXPERTS)[:top] for _ in range(rows)]).astype(np.int32)
    ids[-1, -1] = -1
    return ids


def _rounded(generator: np.random.Generator, parts: int, n: int, k: int, device: str) -> Iterator[Comparison]:
    base, delta = _tiers(generator, parts, n, k)
    base_there = base.on(device)
    tiers = ((_weights(base, None), None), (_weights(base, delta), delta.on(device)))
    for rows in ROWS:
        ids = _ids(generator, rows, 4)
        shape = (rows, k) if parts == 2 else (rows, 4, k)
        codes = formats.encode_e4m3(generator.standard_normal(shape) * 8)
        scales = generator.integers(116, 130, (*shape[:-1], k // 32), dtype=np.uint8)
        x = reference.x_values(codes, scales)
        for weights, there in tiers:
            found, missing = _run(codes, scales, ids, base_there, there, device, dependent=rows == 6)
            what = f"{parts}x{n}x{k}, M={rows}, {'base' if there is None else 'base and delta'}"
            expected = reference.moe_w2(x, ids, weights, parts * n)
            yield Comparison(what, found, expected, reference.bound(x, ids, weights, parts * n))
            yield Comparison(f"{what}, missing", missing, np.array([reference.missing(ids, weights)]))


def _exact(generator: np.random.Generator, k: int, device: str) -> Iterator[Comparison]:
    """A few small integers, whose sums bfloat16 has, and scales that are far apart while their products are 1."""
    base, delta = _tiers(generator, 1, 32, k)
    dense = np.zeros((op.MOST_ROWS, k))
    dense[:, generator.permutation(k)[:12]] = generator.integers(-2, 3, (op.MOST_ROWS, 12))
    codes, scales = formats.encode_e4m3(dense), np.full((op.MOST_ROWS, k // 32), _ONE, dtype=np.uint8)
    for tier in (base, delta):
        tier.scales[:] = _ONE
    for start, step, ours, theirs in ((0, 2, 107, 147), (1, 3, 139, 115)):
        scales[:, start::step] = ours
        for tier in (base, delta):
            tier.scales[..., start::step] = theirs
    delta.values[:] &= 0b1110  # 0, 1, 2 and 4
    ids = _ids(generator, op.MOST_ROWS, 3)
    found, _ = _run(codes, scales, ids, base.on(device), delta.on(device), device)
    expected = reference.moe_w2(reference.x_values(codes, scales), ids, _weights(base, delta), 32)
    yield Comparison(f"K={k}, integers", found, expected)


def _run(
    codes: Array,
    scales: Array,
    ids: Array,
    base: op.Slots,
    delta: op.Slots | None,
    device: str,
    dependent: bool = False,
) -> tuple[Array, Array]:
    x, x_scale, there = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (codes, scales, ids))
    missing = torch.zeros(1, dtype=torch.int32, device=device)
    out = op.moe_w2(
        x.view(torch.float8_e4m3fn), x_scale, there, base, delta, missing=missing, dependent=dependent, routed=dependent
    )
    return np.asarray(out.double().cpu().numpy()), np.asarray(missing.cpu().numpy())
