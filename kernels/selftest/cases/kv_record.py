"""kv_record on batches of a decode step: every byte of the cache is the oracle's, and so is every row gathered."""

from collections.abc import Iterator

import numpy as np
import torch

from ...common import formats
from ...kv_record import op, reference
from ..comparison import Array, Comparison

# Bytes of a record, and rows a page as served; a row of the others stands for a token, or for two.
FORMS = ((528, 32, 1), (288, 64, 2), (288, 128, 1), (68, 64, 2), (68, 128, 1))
COUNTS = (1, 6, 100)
EPS = 1e-6

_KNOWN, _FILLER = 1000, 0xA5


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operators on a device; yields what they leave beside the oracle's."""
    generator = np.random.default_rng(1)
    angles = generator.uniform(0, 6.3, (_KNOWN, op.ROPE_DIMS // 2))
    cos_sin = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    for width, page, ratio in FORMS:
        for count in COUNTS:
            yield from _batch(generator, cos_sin, width, page, ratio, count, device)


def _batch(
    generator: np.random.Generator, cos_sin: Array, width: int, page: int, ratio: int, count: int, device: str
) -> Iterator[Comparison]:
    record, what = reference.RECORDS[width], f"records of {width} bytes, pages of {page}, {count} rows"
    pages = count // page + 2
    magnitudes = np.exp2(generator.integers(-12, 13, (count, record.dims // 16))).repeat(16, axis=1)
    rows = formats.round_bf16((generator.standard_normal((count, record.dims)) * magnitudes).astype(np.float32))
    positions = generator.integers(0, _KNOWN // 2, count) * 2 + 1
    slots = generator.permutation(pages * page)[:count]
    slots[1::5] = -1
    weight = formats.round_bf16(generator.uniform(0.5, 2, record.dims).astype(np.float32))
    memory = np.full((pages, page * width), _FILLER, dtype=np.uint8)
    cache = torch.from_numpy(memory.copy()).to(device).view(pages, page, width)
    at, angles_there, slots_there = (torch.from_numpy(values).to(device) for values in (positions, cos_sin, slots))
    there, weight_there = (torch.from_numpy(values).to(device).bfloat16() for values in (rows, weight))
    dependent = count == 6
    if width == reference.KEY.width:
        op.kv_record_key(
            there, at, angles_there, slots_there, weight_there, cache,
            eps=EPS, compress_ratio=ratio, dependent=dependent,
        )  # fmt: skip
    else:
        op.kv_record(there, at, angles_there, slots_there, cache, compress_ratio=ratio, dependent=dependent)
    live = reference.written(positions, slots, pages * page, _KNOWN, ratio)
    normal = reference.normalize(rows, weight, EPS) if width == reference.KEY.width else rows
    rotated = reference.rotate(normal, cos_sin[reference.first_of_group(positions, ratio)])
    reference.store(memory, page, slots[live], record.encode(rotated[live]))
    yield Comparison(what, cache.cpu().numpy().reshape(pages, -1), memory)
    found = op.kv_record_gather(cache, slots_there).float().cpu().numpy()
    yield Comparison(f"gathered {what}", found, reference.gather(memory, page, slots, record))
