"""Times p2p_allreduce over all GPUs of this machine, beside NCCL and torch's one-shot all-reduce over symmetric memory.

usage: python3 -m kernels.p2p_allreduce.bench [--json FILE]

A time is that of one sum in a graph of ten that depend on each other, by rank 0's clock; median and 99th percentile are
over a thousand replays. What the link between the cards was decides everything here: figures of NVLink say nothing
about PCIe.
"""

import os
import statistics
from collections.abc import Callable

import torch
from torch import distributed

from kernels.p2p_allreduce import ranks
from kernels.p2p_allreduce.communicator import PeerAllReduce
from kernels.p2p_allreduce.rank_tasks import SIZES
from kernels.testing import gpu, table

CHAIN = 10
REPLAYS = 1000

Times = dict[str, tuple[float, float]]


def _timed(me: ranks.Rank, step: Callable[[int], object]) -> tuple[float, float]:
    """Median and 99th percentile of one step's microseconds; all ranks replay together."""
    captured = gpu.graph(step, CHAIN)
    me.gather(None)
    times: list[float] = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        captured.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CHAIN)
    times = times[20:]
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def _one_shot(size: int, device: torch.device) -> Callable[[int], object] | None:
    """One launch of the one-shot all-reduce that torch itself has, where this torch and these cards can."""
    try:
        from torch.distributed import _symmetric_memory as symmetric

        buffer = symmetric.empty(size // 2, dtype=torch.bfloat16, device=device)
        symmetric.rendezvous(buffer, distributed.group.WORLD)
        name = distributed.group.WORLD.group_name
        torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
        return lambda _: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
    except (ImportError, AttributeError, RuntimeError) as error:
        print(f"torch's one-shot all-reduce: {str(error).splitlines()[0]}", flush=True)
        return None


def _ours_and_nccl(me: ranks.Rank, peers: PeerAllReduce, x: torch.Tensor) -> Times:
    out = torch.empty_like(x)
    return {
        "": _timed(me, lambda _: peers.all_reduce(x, out=out)),
        "dependent ": _timed(me, lambda _: peers.all_reduce(x, out=out, dependent=True)),
        "NCCL ": _timed(me, lambda _: distributed.all_reduce(x)),
    }


def measure(me: ranks.Rank) -> dict[int, Times]:
    """On each rank: times of every size by every way, in microseconds."""
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    me.nccl("bench", range(me.world))
    peers = me.communicator(20.0)
    found: dict[int, Times] = {}
    for size in SIZES:
        found[size] = _ours_and_nccl(me, peers, torch.randn(size // 2, device=me.device).bfloat16())
        one_shot = _one_shot(size, me.device)
        if all(me.gather(one_shot is not None)) and one_shot is not None:
            found[size]["torch one-shot "] = _timed(me, one_shot)
    peers.check()
    peers.close()
    distributed.destroy_process_group()
    return found


def link_rate() -> float:
    """Bytes a second that a large copy moves from the first card to the second."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:0")
    target = torch.empty_like(source, device="cuda:1")
    times: list[float] = []
    for _ in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return int(source.nbytes) / float(statistics.median(times[2:]))


def rows(_: float) -> list[table.Row]:
    """Measures every size over all cards; the floor is what a rank must send over what the link moves."""
    world = torch.cuda.device_count()
    if world < 2:
        return [{"ranks": "one card: nothing to measure"}]
    rate = link_rate()
    found = ranks.run(world, measure)[0]
    result: list[table.Row] = []
    for size, ways in found.items():
        floor = (world - 1) * size / rate * 1e6
        row: table.Row = {"ranks": world, "bytes": size, "link GB/s": rate / 1e9, "floor us": floor}
        for way, (median, slow) in ways.items():
            row |= {f"{way}us": median, f"{way}p99 us": slow}
        result.append(row | {"dependent share": floor / ways["dependent "][0]})
    return result


if __name__ == "__main__":
    table.main(__doc__, rows)
