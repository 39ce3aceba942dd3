"""The order in which the bench measures, and what it keeps in memory, without a GPU."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from kernels.p2p_allreduce import bench, ranks
from kernels.p2p_allreduce.baselines.way import Step, Way, part, total
from kernels.p2p_allreduce.rank_tasks import SIZES
from kernels.testing import gpu

WORLD, COUNT = 2, 64
CPU = torch.device("cpu")


class Me(ranks.Rank):
    """A rank whose peers say what it says, but for a way that they cannot."""

    def __init__(self, lacking: int = -1) -> None:
        self.rank, self.world, self.device = 0, WORLD, CPU
        self.asked, self.lacking = 0, lacking

    def gather(self, value: Any, among: Sequence[int] | None = None) -> list[Any]:
        if not isinstance(value, bool):
            return [value] * WORLD
        self.asked += 1
        return [value, self.asked - 1 != self.lacking]


class Event:
    """In the place of torch.cuda.Event."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: "Event") -> float:
        return 0.01 * bench.CHAIN


class Graphs:
    """In the place of CUDA's: as those, they read memory that they do not hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory: list[weakref.ref[torch.Tensor]] = []
        self.replayed: list[int] = []
        monkeypatch.setattr(gpu, "graph", self._captured)
        monkeypatch.setattr(torch.cuda, "Event", Event)

    def way(self, name: str, in_place: bool = False) -> Way:
        def prepare(x: torch.Tensor) -> Step:
            buffer = total(WORLD, x.numel(), CPU)
            self.memory.append(weakref.ref(buffer))
            return lambda: buffer.clone()

        return Way(name, prepare, in_place=in_place)

    def _captured(self, function: Callable[[int], object], launches: int) -> "Graph":
        assert launches == bench.CHAIN
        for i in range(launches):
            function(i)
        return Graph(self, len(self.memory) - 1)


class Graph:
    def __init__(self, graphs: Graphs, number: int) -> None:
        self._graphs, self._number = graphs, number

    def replay(self) -> None:
        assert self._graphs.memory[self._number]() is not None, "the graph outlived the memory that it reads"
        self._graphs.replayed.append(self._number)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    return Graphs(monkeypatch)


def test_ways_take_turns_and_their_memory_stays(graphs: Graphs) -> None:
    found = bench._measured(Me(), [graphs.way("ours"), graphs.way("NCCL")], part(0, COUNT, CPU))
    assert found == {name: bench.Times(10.0, 10.0) for name in ("ours", "NCCL")}
    each = bench._WARM_UP + bench.REPLAYS // bench.ROUNDS
    assert graphs.replayed == ([0] * each + [1] * each) * bench.ROUNDS
    assert all(memory() is None for memory in graphs.memory), "kept beyond the size"


def test_a_way_that_one_rank_lacks_is_left_out(graphs: Graphs) -> None:
    found = bench._measured(Me(lacking=1), [graphs.way("ours"), graphs.way("NCCL")], part(0, COUNT, CPU))
    assert list(found) == ["ours"] and set(graphs.replayed) == {0}


def test_sums_in_a_graph_are_compared_unless_in_place(graphs: Graphs) -> None:
    def spoilt(way: Way) -> Way:
        """Right at first, wrong from the graph on."""

        def prepare(x: torch.Tensor) -> Step | None:
            right, calls = way.prepare(x), [0]
            assert right is not None

            def step() -> torch.Tensor:
                calls[0] += 1
                return right() + (calls[0] > 1)

            return step

        return Way(way.name, prepare, in_place=way.in_place)

    assert bench._measured(Me(), [spoilt(graphs.way("NCCL", in_place=True))], part(0, COUNT, CPU))
    with pytest.raises(ArithmeticError, match="p2p_allreduce, in a graph: wrong sums, of 64 a rank"):
        bench._measured(Me(), [spoilt(graphs.way(""))], part(0, COUNT, CPU))


def test_what_peers_have_mapped_stays_until_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's peers have mapped the memory of what it sums in a graph, and keep that to the end."""
    summed: list[weakref.ref[torch.Tensor]] = []

    @contextmanager
    def ways(*_: object) -> Iterator[list[Way]]:
        yield []
        assert len(summed) == len(SIZES) and all(x() is not None for x in summed)

    def measured(me: Me, _: list[Way], x: torch.Tensor) -> dict[str, bench.Times]:
        summed.append(weakref.ref(x))
        return {"": bench.Times(float(x.nbytes), 0.0)}

    monkeypatch.setattr(bench, "_ways", ways)
    monkeypatch.setattr(bench, "_measured", measured)
    monkeypatch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "")
    assert bench.measure({}, Me()) == {size: {"": bench.Times(float(size), 0.0)} for size in SIZES}
