"""What paged_mqa_logits and paged_mqa_logits_metadata compute, in plain numpy.

Formats, as vLLM 0.33.0 writes and reads them: a page has the values of all of its keys, then 4 bytes a key. E4M3: 128
bytes of values and a float32. MXFP4: 64 bytes of E2M1 pairs, and a UE8M0 byte for every 32 values.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Doubles = NDArray[np.float64]

HEAD_DIM = 128
# Keys that are scheduled together.
UNIT = 32


@dataclass(frozen=True)
class Keys:
    """Keys of one request: values [keys, 128], and what a logit is multiplied by [keys]."""

    values: Doubles
    scales: Doubles


def mxfp4_values(packed: Bytes, scales: Bytes) -> Doubles:
    """Pairs of E2M1 [..., 64] with UE8M0 scales [..., 4], as float64 [..., 128]."""
    return formats.decode_e2m1(packed) * np.repeat(formats.decode_ue8m0(scales), formats.BLOCK, axis=-1)


def decode_keys(rows: Bytes, scales: Bytes) -> Keys:
    """Keys from their bytes: rows [keys, 128] of E4M3 or [keys, 64] of pairs of E2M1, and scales [keys, 4]."""
    if rows.shape[-1] == HEAD_DIM:
        return Keys(formats.decode_e4m3(rows), np.ascontiguousarray(scales).view(np.float32)[..., 0].astype(np.float64))
    return Keys(mxfp4_values(rows, scales), np.ones(len(rows)))


def write_pages(rows: Bytes, scales: Bytes, page: int, filler: int = 0) -> Bytes:
    """The pages of keys given by their bytes, in their order: [pages, page * (bytes of a row + 4)]."""
    pages = -(-len(rows) // page)
    planes = []
    for plane in (rows, scales):
        whole = np.full((pages * page, plane.shape[1]), filler, dtype=np.uint8)
        whole[: len(plane)] = plane
        planes.append(whole.reshape(pages, page * plane.shape[1]))
    return np.concatenate(planes, axis=1)


def read_page(memory: Bytes, page: int) -> tuple[Bytes, Bytes]:
    """Rows and scales of the keys in the memory of one page of that many keys."""
    width = memory.size // page - 4
    return memory[: page * width].reshape(page, width), memory[page * width :].reshape(page, 4)


def logits(q: Doubles, weights: Doubles, keys: Keys) -> Doubles:
    """Logits of keys for rows of q [rows, 32, 128] with weights [rows, 32]: [rows, keys].

    A product that is not a number counts as 0, since max(x, 0) has it so.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        products = np.fmax(q @ keys.values.T, 0.0)
        result: Doubles = np.einsum("rh,rhk->rk", weights, products) * keys.scales
        return result


def bound(q: Doubles, weights: Doubles, keys: Keys) -> Doubles:
    """Returns how far an output may be from logits(): [rows, keys].

    fp32 throughout: a product has 128 terms, whose sum is rounded fewer than 64 times; the sum over heads has 32, each
    rounded once, and a scale. max(x, 0) makes no error larger. Below the smallest numbers of
    fp32, errors are absolute.
    """
    magnitude = np.einsum("rh,rhk->rk", np.abs(weights), np.abs(q) @ np.abs(keys.values).T) * np.abs(keys.scales)
    least = 2.0**-136 * (1 + np.abs(weights).sum(axis=1))[:, None] * np.maximum(np.abs(keys.scales), 1)
    result: Doubles = (64 + 40) * 2.0**-24 * magnitude + least
    return result


def schedule(contexts: Ints, slots: int) -> Ints:
    """Where each of `slots` begins, as (request, unit), and where the last ends: [slots + 1, 2].

    `contexts` are [requests, rows]; a request has the units of its longest row.
    """
    units = np.maximum(-(-contexts.max(axis=1).astype(np.int64) // UNIT), 0)
    owners = np.repeat(np.arange(len(units)), units)
    first = np.cumsum(units) - units
    result = np.zeros((slots + 1, 2), dtype=np.int32)
    for slot in range(1, slots):
        place = slot * len(owners) // slots
        result[slot] = (owners[place], place - first[owners[place]]) if place < len(owners) else (len(units), 0)
    result[slots] = (len(units), 0)
    return result
