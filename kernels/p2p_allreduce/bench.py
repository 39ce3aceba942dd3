"""Times p2p_allreduce over all GPUs of this machine, beside NCCL and torch's one-shot all-reduce over symmetric memory.

usage: python3 -m kernels.p2p_allreduce.bench [--json FILE] [--vllm LIBRARY] [--flashinfer LIBRARY]

--vllm takes vllm/_C_stable_libtorch.abi3.so, and measures vLLM's custom all-reduce too; --flashinfer takes what
FlashInfer's build makes of its PCIe all-reduce, and needs apache-tvm-ffi (baselines/).

A size goes by the protocol that PeerAllReduce takes for it. Each protocol alone is measured too, in dependent launches,
which shows from which size on the simple one is the faster over this machine's link (PeerAllReduce's ll_bytes).

A time is that of one sum in a graph of ten that depend on each other, by rank 0's clock; median and 99th percentile are
over a thousand replays, in four rounds in which the ways take turns. Every way's sums are compared with the exact ones
before, and all but NCCL's, which are in place, in the graph after them, too.
What the link between the cards was decides everything here: figures of NVLink say nothing about PCIe.
"""

import functools
import os
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import distributed

from kernels.p2p_allreduce import op, ranks
from kernels.p2p_allreduce.baselines import flashinfer, vllm
from kernels.p2p_allreduce.baselines.way import Step, Way, part, require_right
from kernels.p2p_allreduce.communicator import PeerAllReduce
from kernels.p2p_allreduce.rank_tasks import SIZES
from kernels.testing import gpu, table

CHAIN = 10
REPLAYS = 1000
ROUNDS = 4
# Of each round.
_WARM_UP = 10
# To choose among configurations.
_TRIAL_REPLAYS = 9
# FlashInfer's have up to 190 configurations a size.
_PATIENCE_S = 1800.0

_DEPENDENT = "dependent"


@dataclass(frozen=True)
class Times:
    """Microseconds of one sum."""

    median: float
    p99: float

    @staticmethod
    def of(times: Sequence[float]) -> "Times":
        """Of a thousand or so."""
        return Times(statistics.median(times), statistics.quantiles(times, n=100)[98])


@dataclass(frozen=True)
class _Captured:
    """A graph of CHAIN sums, where its last one is, and the microseconds of a sum in each replay so far."""

    way: Way
    graph: torch.cuda.CUDAGraph
    # Holds the memory that the graph reads.
    step: Step
    last: torch.Tensor
    times: list[float] = field(default_factory=list)


def _replays(me: ranks.Rank, graph: torch.cuda.CUDAGraph, count: int) -> list[float]:
    """Microseconds of one sum, of each of `count` replays; all ranks begin together."""
    me.gather(None)
    times: list[float] = []
    for _ in range(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CHAIN)
    return times


def _captured(me: ranks.Rank, way: Way, x: torch.Tensor) -> _Captured | None:
    """A way's graph; None where one of the cards cannot. Raises ArithmeticError where sums are wrong."""
    step = way.prepare(x)
    if not all(me.gather(step is not None)) or step is None:
        return None
    require_right(me, step(), way.name or "p2p_allreduce")
    results: list[torch.Tensor] = []
    graph = gpu.graph(lambda _: results.append(step()), CHAIN)
    way.captured()
    return _Captured(way, graph, step, results[-1])


def _measured(me: ranks.Rank, ways: Sequence[Way], x: torch.Tensor) -> dict[str, Times]:
    """Times of all ways that can, by name; in turn, so that a clock that changes does so for each."""
    found = [one for way in ways if (one := _captured(me, way, x)) is not None]
    for _ in range(ROUNDS):
        for one in found:
            one.times.extend(_replays(me, one.graph, _WARM_UP + REPLAYS // ROUNDS)[_WARM_UP:])
    for one in found:
        if not one.way.in_place:
            require_right(me, one.last, f"{one.way.name or 'p2p_allreduce'}, in a graph")
    return {one.way.name: Times.of(one.times) for one in found}


def _trial(me: ranks.Rank, step: Step) -> float:
    """Median microseconds of a step, on the rank where it takes longest."""
    graph = gpu.graph(lambda _: step(), CHAIN)
    medians: list[float] = me.gather(statistics.median(_replays(me, graph, _TRIAL_REPLAYS)))
    return max(medians)


def _ours(peers: PeerAllReduce, x: torch.Tensor, dependent: bool) -> Step:
    out = torch.empty_like(x)
    return lambda: peers.all_reduce(x, out=out, dependent=dependent)


def _by_low_latency(peers: PeerAllReduce, x: torch.Tensor) -> Step | None:
    """By that protocol, where x is not too large for it."""
    return _ours(peers, x, dependent=True) if x.nbytes <= op.LL_BYTES else None


def _nccl(x: torch.Tensor) -> Step:
    summed = x.clone()

    def step() -> torch.Tensor:
        distributed.all_reduce(summed)
        return summed

    return step


def _one_shot(x: torch.Tensor) -> Step | None:
    """The one-shot all-reduce that torch itself has, where this torch and these cards can."""
    try:
        from torch.distributed import _symmetric_memory as symmetric

        buffer = symmetric.empty(x.numel(), dtype=x.dtype, device=x.device)
        symmetric.rendezvous(buffer, distributed.group.WORLD)
        name = distributed.group.WORLD.group_name
        buffer.copy_(x)
        torch.cuda.synchronize()
        torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
        return lambda: torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
    except (ImportError, AttributeError, RuntimeError) as error:
        print(f"torch's one-shot all-reduce: {str(error).splitlines()[0]}", flush=True)
        return None


@contextmanager
def _ways(me: ranks.Rank, libraries: dict[str, Path]) -> Iterator[list[Way]]:
    """All ways, set up among the ranks."""
    me.nccl("bench", range(me.world))
    peers, simple, ll = (me.communicator(20.0, ll_bytes) for ll_bytes in (None, 0, op.LL_BYTES))
    ways = [
        Way("", lambda x: _ours(peers, x, dependent=False)),
        Way(_DEPENDENT, lambda x: _ours(peers, x, dependent=True)),
        Way("simple", lambda x: _ours(simple, x, dependent=True)),
        Way("LL", lambda x: _by_low_latency(ll, x)),
        Way("NCCL", _nccl, in_place=True),
        Way("torch one-shot", _one_shot),
    ]
    others: list[vllm.CustomAllReduce | flashinfer.PcieAllReduce] = []
    if "vllm" in libraries:
        others.append(vllm.CustomAllReduce(libraries["vllm"], me))
    if "flashinfer" in libraries:
        timed = functools.partial(_trial, me)
        others.append(flashinfer.PcieAllReduce(libraries["flashinfer"], me, max(SIZES), timed))
    yield [*ways, *(other.way() for other in others)]
    for one in (peers, simple, ll):
        one.check()
        one.close()
    for other in others:
        other.close()
    distributed.destroy_process_group()


def measure(libraries: dict[str, Path], me: ranks.Rank) -> dict[int, dict[str, Times]]:
    """On each rank: times of every size by every way that can."""
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    # To the end: what vLLM has summed in a graph is mapped by its peers, so torch must not give it back to CUDA.
    xs = [part(me.rank, size // 2, me.device) for size in SIZES]
    with _ways(me, libraries) as ways:
        return {size: _measured(me, ways, x) for size, x in zip(SIZES, xs, strict=True)}


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


def row(world: int, size: int, rate: float, ways: dict[str, Times]) -> table.Row:
    """A size's row; the floor is what a rank must send over what the link moves, in bytes a second.

    Ratios are of medians: how often a dependent launch of ours fits into another way's sum.
    """
    floor = (world - 1) * size / rate * 1e6
    found: table.Row = {"ranks": world, "bytes": size, "link GB/s": rate / 1e9, "floor us": floor}
    for name, times in ways.items():
        prefix = f"{name} " if name else ""
        found |= {f"{prefix}us": times.median, f"{prefix}p99 us": times.p99}
    ours = ways[_DEPENDENT].median
    others = {name: times for name, times in ways.items() if name not in ("", _DEPENDENT)}
    found |= {f"{name} / {_DEPENDENT}": times.median / ours for name, times in others.items()}
    return found | {f"{_DEPENDENT} share": floor / ours}


def rows(_: float, **libraries: Path) -> list[table.Row]:
    """Measures every size over all cards; `libraries` are of what is measured beside."""
    world = torch.cuda.device_count()
    if world < 2:
        return [{"ranks": "one card: nothing to measure"}]
    rate = link_rate()
    found = ranks.run(world, functools.partial(measure, libraries), _PATIENCE_S)[0]
    return [row(world, size, rate, ways) for size, ways in found.items()]


LIBRARIES = {
    "vllm": "vllm/_C_stable_libtorch.abi3.so: measure vLLM's custom all-reduce too",
    "flashinfer": "pcie_ipc_comm.so: measure FlashInfer's PCIe all-reduce too",
}

if __name__ == "__main__":
    table.main(__doc__, rows, LIBRARIES)
