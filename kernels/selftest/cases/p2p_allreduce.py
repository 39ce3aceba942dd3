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
            out, sent = _run(tensors, name, device)
            what = f"{world} ranks, {size} bytes, {name}"
            yield Comparison(f"{what}, sum", out, exact)
            yield Comparison(f"{what}, sent", sent, np.stack([_bytes(tensors[0])] * (world - 1)))


def _bytes(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.view(torch.uint8).numpy())


def _run(tensors: list[torch.Tensor], dtype: str, device: str) -> tuple[Array, Array]:
    """As rank 0, in the first round: the sum, and what each peer has got."""
    world = len(tensors)
    own = np.zeros(reference.workspace_bytes(world), dtype=np.uint8)
    for peer in range(1, world):
        reference.delivered(own, peer, world, 1, _bytes(tensors[peer]).tobytes(), dtype)
    x = tensors[0].to(device)
    workspaces = [torch.from_numpy(own).to(device)]
    workspaces += [torch.zeros_like(workspaces[0]) for _ in range(1, world)]
    status = torch.zeros(1, dtype=torch.int64, pin_memory=x.is_cuda)
    out = torch.zeros_like(x)
    op.p2p_allreduce(x, out, status.data_ptr(), [workspace.data_ptr() for workspace in workspaces], 0, DEADLINE_NS)
    found = np.asarray(out.float().cpu().numpy())
    begin = reference.data_at(1, 0, world)
    size = tensors[0].nbytes
    sent = [workspace[begin : begin + size].cpu().numpy() for workspace in workspaces[1:]]
    return found, np.stack(sent)
