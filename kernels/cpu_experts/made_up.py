"""Records for tests and benches: random codes, scales as checkpoints have them, memory as the tier wants it."""

import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .layout import ALIGNMENT, SCALE_BYTES, SUPERBLOCK, Record, pack_expert, unpack_expert
from .reference import Words, to_bfloat16

Bytes = NDArray[np.uint8]


def aligned(size: int) -> Bytes:
    """So many bytes at a multiple of 64."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % ALIGNMENT
    return room[begin : begin + size]


def arena(size: int) -> Bytes:
    """So many zero bytes in huge pages, where the system gives these."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def fill(flat: Bytes, seed: int, scales: tuple[int, int] = (118, 122)) -> Bytes:
    """Fills a record, or some superblocks: any codes, scales of this range with both ends in it."""
    random = np.random.default_rng(seed)
    blocks = flat.reshape(-1, SUPERBLOCK)
    blocks[:] = random.integers(0, 256, blocks.shape, dtype=np.uint8)
    blocks[:, :SCALE_BYTES] = random.integers(scales[0], scales[1] + 1, (len(blocks), SCALE_BYTES), dtype=np.uint8)
    return flat


def record(shape: Record, seed: int, scales: tuple[int, int] = (118, 122)) -> Bytes:
    """A record of random bytes, and zeros where it is filled up, at a multiple of 64."""
    flat = fill(aligned(shape.size), seed, scales)
    return pack_expert(shape, unpack_expert(shape, flat), out=flat)


def activations(shape: Sequence[int], seed: int) -> Words:
    """Normally distributed bfloat16 words."""
    return to_bfloat16(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def routed(tokens: int, slots: int, experts: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Ids with gaps, doubles, and experts that some tokens have and others not; and weights."""
    random = np.random.default_rng(seed)
    ids = random.integers(-1, experts, (tokens, slots), dtype=np.int32)
    return ids, random.standard_normal((tokens, slots)).astype(np.float32)
