"""p2p_allreduce on one card, which plays the peers too: their parts lie in the workspace before the rank comes."""

from collections.abc import Iterator

import numpy as np
import torch

from ...p2p_allreduce import op, reference
from ..comparison import Array, Comparison

WORLDS = (2, 4, 8)
# Bytes: a row of 5120 bf16, six of them, and the most.
SIZES = (10240, 61440, 524288)
DEADLINE_NS = 5_000_000_000


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operator on a device; yields its sums and what it sends beside the oracle's."""
    generator = np.random.default_rng(1)
    for world in WORLDS:
        for size, dtype in zip(SIZES, op.DTYPES, strict=True):
            name = str(dtype).removeprefix("torch.")
            parts = generator.standard_normal((world, size // dtype.itemsize)).astype(np.float32)
            tensors = [torch.from_numpy(part).to(dtype) for part in parts]
            exact = reference.allreduce(np.stack([tensor.float().numpy() for tensor in tensors]), name)
            for ll in (False, True)[: 1 + (size <= op.LL_BYTES)]:
                out, sent, expected = _run(tensors, name, device, ll)
                what = f"{world} ranks, {size} bytes, {name}, {'low latency' if ll else 'simple'}"
                yield Comparison(f"{what}, sum", out, exact)
                yield Comparison(f"{what}, sent", sent, expected)


def _bytes(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.view(torch.uint8).numpy())


def _run(tensors: list[torch.Tensor], dtype: str, device: str, ll: bool) -> tuple[Array, Array, Array]:
    """As rank 0, in the first round: the sum, what came to the peers, and what should have."""
    world = len(tensors)
    sent = [_bytes(tensor).tobytes() for tensor in tensors]
    own, *peers = (np.zeros(reference.workspace_bytes(world), dtype=np.uint8) for _ in range(world))
    for peer in range(1, world):
        reference.delivered(own, peer, world, 1, sent[peer], dtype, ll)
        reference.delivered(peers[peer - 1], 0, world, 1, sent[0], dtype, ll)
    x = tensors[0].to(device)
    workspaces = [torch.from_numpy(own).to(device)]
    workspaces += [torch.zeros_like(workspaces[0]) for _ in peers]
    addresses = [workspace.data_ptr() for workspace in workspaces]
    status = torch.zeros(1, dtype=torch.int64, pin_memory=x.is_cuda)
    out = torch.zeros_like(x)
    op.p2p_allreduce(x, out, status.data_ptr(), addresses, 0, DEADLINE_NS, ll=ll)
    found = np.asarray(out.float().cpu().numpy())
    begin = reference.words_at(1, 0, world) if ll else reference.data_at(1, 0, world)
    end = begin + (2 * op.LL_BYTES if ll else x.nbytes)
    sent_there = [workspace[begin:end].cpu().numpy() for workspace in workspaces[1:]]
    return found, np.stack(sent_there), np.stack([peer[begin:end] for peer in peers])
