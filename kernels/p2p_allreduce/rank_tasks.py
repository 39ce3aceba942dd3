"""What ranks do in the tests on GPUs; of a module of its own, so that their processes find it."""

import hashlib
import time
from typing import Any

import numpy as np
import torch
from torch import distributed

from kernels.p2p_allreduce import op, reference
from kernels.p2p_allreduce.communicator import PeerAllReduce, PeerLostError
from kernels.p2p_allreduce.ranks import Rank
from kernels.testing import gpu

# Bytes: a token's row of bf16 at 5120 columns twice below, then 6, 8 and 48 rows, and the most.
SIZES = (5120, 10240, 61440, 81920, 491520, 524288)
DEADLINE = 3.0


def part(rank: int, size: int, dtype: torch.dtype, seed: int, device: torch.device) -> torch.Tensor:
    """The part that a rank adds, in `size` bytes; every process can make every rank's."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    count = size // torch.empty(0, dtype=dtype).element_size()
    return torch.randn(count, generator=generator).to(dtype).to(device)


def parts(world: int, size: int, dtype: torch.dtype, seed: int) -> np.ndarray:
    """All of them, as float32."""
    cpu = torch.device("cpu")
    return np.stack([part(rank, size, dtype, seed, cpu).float().numpy() for rank in range(world)])


def _exact(me: Rank, size: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    name = str(dtype).removeprefix("torch.")
    return torch.from_numpy(reference.allreduce(parts(me.world, size, dtype, seed), name)).to(dtype)


def correct(me: Rank) -> int:
    """Every size and type by both protocols, plain and in place, against the oracle and fp64; returns how many."""
    return sum(_correct(me, ll_bytes) for ll_bytes in (0, op.LL_BYTES))


def _correct(me: Rank, ll_bytes: int) -> int:
    peers = me.communicator(60.0, ll_bytes)
    done = 0
    for size in SIZES:
        for dtype in op.DTYPES:
            name = str(dtype).removeprefix("torch.")
            x = part(me.rank, size, dtype, size, me.device)
            out = peers.all_reduce(x)
            peers.all_reduce(x, out=x, dependent=True)
            torch.cuda.synchronize()
            peers.check()
            assert torch.equal(gpu.bits(out.cpu()), gpu.bits(_exact(me, size, dtype, size))), f"{size}, {name}"
            assert torch.equal(gpu.bits(out), gpu.bits(x)), f"{size}, {name}: in place"
            all_parts = parts(me.world, size, dtype, size).astype(np.float64)
            error = np.abs(out.double().cpu().numpy() - all_parts.sum(axis=0))
            assert (error <= reference.bound(all_parts, name)).all(), f"{size}, {name}: beyond the bound"
            done += 2
    peers.close()
    return done


def repeated(me: Rank) -> list[str]:
    """1000 sums by launches and 1000 by replays of a graph, of all sizes in turn; returns the digests of all bits."""
    peers = me.communicator(60.0)
    digests = []
    xs = [part(me.rank, size, torch.bfloat16, size, me.device) for size in SIZES]
    firsts = [peers.all_reduce(x) for x in xs]
    different = torch.zeros((), dtype=torch.int64, device=me.device)
    outs = [torch.empty_like(x) for x in xs]

    def sums(_: int) -> None:
        for x, out, first in zip(xs, outs, firsts, strict=True):
            out.fill_(float("nan"))
            peers.all_reduce(x, out=out)
            different.add_((gpu.bits(out) != gpu.bits(first)).sum())

    for i in range(167):
        sums(i)
    captured = gpu.graph(sums, 1)
    for _ in range(167):
        captured.replay()
    torch.cuda.synchronize()
    peers.check()
    assert different.item() == 0, f"{different.item()} numbers differed from the first sum"
    for size, first in zip(SIZES, firsts, strict=True):
        assert torch.equal(gpu.bits(first.cpu()), gpu.bits(_exact(me, size, torch.bfloat16, size)))
        digests.append(hashlib.sha256(gpu.bits(first).cpu().numpy().tobytes()).hexdigest())
    peers.close()
    return digests


def until_lost(me: Rank) -> dict[str, Any]:
    """Replays a graph of sums until a peer is lost; then the survivors, if cards allow, sum through NCCL."""
    peers = me.communicator(DEADLINE)
    x = part(me.rank, 61440, torch.bfloat16, 1, me.device)
    out = torch.empty_like(x)
    captured = gpu.graph(lambda _: peers.all_reduce(x, out=out), 20)
    torch.cuda.synchronize()
    me.tell("running")
    begin = last = time.monotonic()
    while peers.failure() is None and time.monotonic() - begin < 60:
        last = time.monotonic()
        captured.replay()
        torch.cuda.synchronize()
    seconds = time.monotonic() - last
    failure = peers.failure()
    assert failure is not None, "no peer was lost"
    nan = bool(torch.isnan(out).any().item())
    captured.replay()
    torch.cuda.synchronize()
    assert peers.failure() == failure
    try:
        peers.all_reduce(x)
        raise AssertionError("expected PeerLostError")
    except PeerLostError as error:
        message = str(error)
    peers.close(peers_are_there=False)
    members = me.left()
    result = {"failure": failure, "seconds": seconds, "nan": nan, "message": message}
    return result | {"anew": _set_up_anew(me, members, x), "nccl": _taken_over(me, members, x)}


def heard(me: Rank) -> tuple[op.Failure | None, op.Failure | None, op.Failure | None]:
    """Rank 0 sums once more than the others; returns the own failure, and begin_check()'s before that sum and after."""
    peers = me.communicator(DEADLINE)
    x = torch.ones(64, device=me.device)
    peers.all_reduce(x)
    before = _begun(peers)
    me.gather(None)
    if me.rank == 0:
        peers.all_reduce(x)
        torch.cuda.synchronize()
    me.gather(None)
    return peers.failure(), before, _begun(peers)


def _begun(peers: PeerAllReduce) -> op.Failure | None:
    """What begin_check() finds, on a stream of its own behind the current one."""
    step, copies = torch.cuda.current_stream(), torch.cuda.Stream()
    with torch.cuda.stream(copies):
        copies.wait_stream(step)
        check = peers.begin_check()
    copies.synchronize()
    try:
        check()
    except PeerLostError as error:
        return error.failure
    return None


def _set_up_anew(me: Rank, members: list[int], x: torch.Tensor) -> bool | None:
    """Whether a new communicator sums where nobody died; None where somebody did."""
    if len(members) < me.world:
        return None
    peers = me.communicator(60.0)
    right = bool(torch.equal(gpu.bits(peers.all_reduce(x).cpu()), gpu.bits(_exact(me, 61440, torch.bfloat16, 1))))
    peers.close()
    return right


def _taken_over(me: Rank, members: list[int], x: torch.Tensor) -> bool | None:
    """Whether NCCL's sum among `members` is right; None where not each has a card of its own."""
    if me.rank not in members or len(members) > torch.cuda.device_count():
        return None
    me.nccl("survivors", members)
    total = x.float()
    distributed.all_reduce(total)
    exact = parts(me.world, 61440, torch.bfloat16, 1)[members].sum(axis=0)
    right = bool(np.allclose(total.cpu().numpy(), exact, rtol=0, atol=1e-5))
    distributed.destroy_process_group()
    return right
