"""p2p_allreduce on GPUs: with peers that torch plays, as streams of one process, and as processes."""

import functools
import os
import signal
import time
from collections.abc import Callable

# Before CUDA begins: ranks that are streams must not wait for each other in one queue.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import numpy as np
import pytest
import torch

from kernels.p2p_allreduce import op, rank_tasks, ranks, reference
from kernels.p2p_allreduce.op import Cause, Failure, p2p_allreduce
from kernels.testing.gpu import bits

CARDS = torch.cuda.device_count()
CUDA = torch.device("cuda", 0)
SECOND = 1_000_000_000
BOTH = pytest.mark.parametrize("ll", [False, True], ids=["simple", "low latency"])


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class World:
    """Ranks in this process: their workspaces as tensors, and a stream each."""

    def __init__(self, world: int) -> None:
        self.world = world
        size = reference.workspace_bytes(world)
        self.workspaces = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(world)]
        self.addresses = [workspace.data_ptr() for workspace in self.workspaces]
        self.statuses = [torch.zeros(1, dtype=torch.int64, pin_memory=True) for _ in range(world)]
        self.words = [status.data_ptr() for status in self.statuses]
        self.streams = [torch.cuda.Stream() for _ in range(world)]
        torch.cuda.synchronize()

    def launch(self, rank: int, x: torch.Tensor, out: torch.Tensor, deadline: int = 20 * SECOND, **more: bool) -> None:
        p2p_allreduce(x, out, self.words[rank], self.addresses, rank, deadline, **more)

    def count_from(self, rounds: int) -> None:
        """As if so many rounds were complete."""
        for workspace in self.workspaces:
            workspace[reference.ROUNDS : reference.ROUNDS + 8 * reference.MOST_BLOCKS].view(torch.int64).fill_(rounds)
        torch.cuda.synchronize()

    def failures(self) -> list[Failure | None]:
        torch.cuda.synchronize()
        return [Failure.of(int(status.item())) for status in self.statuses]

    def everywhere(self, function: Callable[[int], None]) -> None:
        """Runs a function of each rank on that rank's stream."""
        for rank, stream in enumerate(self.streams):
            with torch.cuda.stream(stream):
                function(rank)


def image(workspace: torch.Tensor) -> np.ndarray:
    return np.asarray(workspace.cpu().numpy())


@pytest.mark.sanitizer
@pytest.mark.parametrize("before", [0, 2**32 - 2])
@pytest.mark.parametrize("dtype", op.DTYPES, ids=str)
@pytest.mark.parametrize("world", range(2, 9))
def test_against_the_oracle(world: int, dtype: torch.dtype, before: int) -> None:
    """Torch plays the peers, in rounds of other sizes by both protocols: the sum, what is sent, and nothing else."""
    rank = world - 1 if world % 2 else 0
    ranks_here = World(world)
    ranks_here.count_from(before)
    images = [image(workspace) for workspace in ranks_here.workspaces]
    for number, size in enumerate((61440, 16, 524288, op.LL_BYTES), start=before + 1):
        ll = size <= op.LL_BYTES and (number + world) % 2 == 0
        played = [rank_tasks.part(r, size, dtype, number % 9, CUDA) for r in range(world)]
        sent = [bits(x).cpu().numpy().tobytes() for x in played]
        for peer in set(range(world)) - {rank}:
            reference.delivered(images[rank], peer, world, number, sent[peer], name(dtype), ll)
            reference.delivered(images[peer], rank, world, number, sent[rank], name(dtype), ll)
        ranks_here.workspaces[rank].copy_(torch.from_numpy(images[rank]))
        out = torch.full((played[0].numel() + 32,), float("nan"), dtype=dtype, device="cuda")
        untouched = bits(out).clone()
        ranks_here.launch(rank, played[rank], out[16:-16], dependent=number % 2 == 0, ll=ll)
        assert ranks_here.failures() == [None] * world
        exact = reference.allreduce(rank_tasks.parts(world, size, dtype, number % 9), name(dtype))
        assert torch.equal(bits(out[16:-16].cpu()), bits(torch.from_numpy(exact).to(dtype)))
        untouched[16:-16] = bits(out)[16:-16]
        assert torch.equal(bits(out), untouched), "wrote outside of out"
        reference.completed(images[rank], number)
        for r in range(world):
            assert np.array_equal(image(ranks_here.workspaces[r]), images[r]), f"round {number}: workspace of rank {r}"


@BOTH
def test_extremes(ll: bool) -> None:
    world = World(2)
    values = [
        [float("inf"), float("inf"), float("nan"), -0.0, 3e38, 1e-45, 1.0, -1.0],
        [1.0, -float("inf"), 1.0, -0.0, 3e38, 1e-45, 2.0**-24, 1.0],
    ]
    xs = [torch.tensor(row, device="cuda") for row in values]
    outs = [torch.empty_like(x) for x in xs]
    world.everywhere(lambda rank: world.launch(rank, xs[rank], outs[rank], ll=ll))
    assert world.failures() == [None, None]
    exact = reference.allreduce(np.array(values, dtype=np.float32), "float32")
    for out in outs:
        assert np.array_equal(out.cpu().numpy(), exact, equal_nan=True)
        assert np.array_equal(np.signbit(out.cpu().numpy())[3:], np.signbit(exact)[3:])


# As many blocks as a GPU of 132 multiprocessors holds at once; a real rank has a GPU to itself.
@pytest.mark.parametrize(("world", "most"), [(2, 524288), (3, 491520), (4, 262144), (8, 131072)])
def test_a_thousand_rounds_have_the_same_bits_on_all_ranks(world: int, most: int) -> None:
    here = World(world)
    sizes = [size for size in (16, 5120, 61440, 131072, most) if size <= most]
    xs = [[rank_tasks.part(rank, size, torch.bfloat16, size, CUDA) for size in sizes] for rank in range(world)]
    outs = [[torch.empty_like(x) for x in mine] for mine in xs]
    exact = [
        torch.from_numpy(reference.allreduce(rank_tasks.parts(world, size, torch.bfloat16, size), "bfloat16"))
        .bfloat16()
        .to("cuda")
        for size in sizes
    ]
    different = torch.zeros(world, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()

    def compared(rank: int, at: int) -> None:
        different[rank] += (bits(outs[rank][at]) != bits(exact[at])).sum()

    def step(i: int, rank: int) -> None:
        at = i % len(sizes)
        outs[rank][at].fill_(float("nan"))
        ll = sizes[at] <= 61440 and i % 3 > 0
        here.launch(rank, xs[rank][at], outs[rank][at], dependent=i % 2 == 1, ll=ll)
        compared(rank, at)

    # CUDA loads a kernel when it is first launched, and may wait for those that run, which wait for ranks to come.
    here.everywhere(lambda rank: outs[rank][0].copy_(exact[0]))
    here.everywhere(lambda rank: compared(rank, 0))
    torch.cuda.synchronize()
    for i in range(1000):
        here.everywhere(functools.partial(step, i))
    assert here.failures() == [None] * world
    assert different.tolist() == [0] * world


@pytest.mark.parametrize("world", [2, 4])
def test_through_memory_of_the_host(world: int) -> None:
    """Workspaces in pinned memory: every part and arrival goes over PCIe, whatever links the cards to each other."""
    devices = [torch.device("cuda", rank % CARDS) for rank in range(world)]
    memory = reference.workspace_bytes(world)
    workspaces = [torch.zeros(memory, dtype=torch.uint8, pin_memory=True) for _ in range(world)]
    addresses = [workspace.data_ptr() for workspace in workspaces]
    statuses = [torch.zeros(1, dtype=torch.int64, pin_memory=True) for _ in range(world)]
    streams = [torch.cuda.Stream(device) for device in devices]
    for number, (size, ll) in enumerate(((524288 if world == 2 else 131072, False), (61440, False), (61440, True))):
        parts = rank_tasks.parts(world, size, torch.bfloat16, number)
        exact = bits(torch.from_numpy(reference.allreduce(parts, "bfloat16")).bfloat16())
        xs = [rank_tasks.part(rank, size, torch.bfloat16, number, device) for rank, device in enumerate(devices)]
        outs = [[torch.empty_like(x) for _ in range(100)] for x in xs]
        for device in devices:
            torch.cuda.synchronize(device)
        for i in range(100):
            for rank, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    word = statuses[rank].data_ptr()
                    p2p_allreduce(xs[rank], outs[rank][i], word, addresses, rank, 20 * SECOND, ll=ll)
        for device in devices:
            torch.cuda.synchronize(device)
        assert [Failure.of(int(status.item())) for status in statuses] == [None] * world
        assert all(torch.equal(bits(out.cpu()), exact) for mine in outs for out in mine)


@BOTH
def test_replayed_graphs_go_on_counting(ll: bool) -> None:
    world, here = 2, World(2)
    xs = [rank_tasks.part(rank, 61440, torch.bfloat16, 3, CUDA) for rank in range(world)]
    exact = torch.from_numpy(reference.allreduce(rank_tasks.parts(2, 61440, torch.bfloat16, 3), "bfloat16")).bfloat16()
    outs = [[torch.empty_like(x) for _ in range(7)] for x in xs]
    captured = []
    for rank in range(world):
        whole = torch.cuda.CUDAGraph()
        with torch.cuda.graph(whole):
            for out in outs[rank]:
                here.launch(rank, xs[rank], out, ll=ll)
        captured.append(whole)
    for _ in range(100):
        for mine in outs:
            for out in mine:
                out.fill_(float("nan"))
        torch.cuda.synchronize()
        here.everywhere(lambda rank: captured[rank].replay())
        assert here.failures() == [None, None]
        assert all(torch.equal(bits(out.cpu()), bits(exact)) for mine in outs for out in mine)


@BOTH
def test_peer_that_does_not_come(ll: bool) -> None:
    here = World(3)
    x = torch.ones(3072, device="cuda")
    outs = [torch.zeros_like(x) for _ in range(4)]
    begin = time.monotonic()
    here.launch(0, x, outs[0], deadline=SECOND // 5, ll=ll)
    failure = here.failures()[0]
    assert time.monotonic() - begin >= 0.2
    assert failure is not None and failure.cause is Cause.DEADLINE and failure.peer in (1, 2) and failure.round == 1
    assert torch.isnan(outs[0]).all()
    told = [here.workspaces[peer][reference.TOLD : reference.TOLD + 8].view(torch.int64).item() for peer in (1, 2)]
    assert [Failure.of(int(word)) for word in told] == [Failure(Cause.ABORTED, 0, 1)] * 2
    before = [image(workspace) for workspace in here.workspaces]
    begin = time.monotonic()
    here.launch(0, x, outs[1], deadline=600 * SECOND, ll=ll)
    assert here.failures()[0] == failure and time.monotonic() - begin < 60
    assert torch.isnan(outs[1]).all()
    assert all(np.array_equal(image(w), b) for w, b in zip(here.workspaces, before, strict=True)), "wrote afterwards"
    here.launch(1, x, outs[2], deadline=600 * SECOND, ll=ll)
    assert here.failures()[1] == Failure(Cause.ABORTED, 0, 1) and torch.isnan(outs[2]).all()
    # All that rank 2 needs for this round arrived before the others gave up; for the next, nothing will.
    here.launch(2, x, outs[3], deadline=600 * SECOND, ll=ll)
    assert here.failures()[2] is None and (outs[3] == 3).all()
    here.launch(2, x, outs[3], deadline=600 * SECOND, ll=ll)
    assert here.failures()[2] in (Failure(Cause.ABORTED, 0, 1), Failure(Cause.ABORTED, 1, 1))
    assert torch.isnan(outs[3]).all()


def test_what_has_arrived_is_all_there() -> None:
    """Of a rank some of whose blocks give up while others begin: no block says of data that came that did not."""
    here, x = World(2), torch.ones(reference.MOST_BYTES // 4, device="cuda")
    out, blocks = torch.empty_like(x), reference.MOST_BLOCKS
    begin, size = reference.data_at(1, 0, 2), 2 * blocks * reference.MOST_RANKS * reference.SECTOR
    arrivals = here.workspaces[1][reference.ARRIVALS : reference.ARRIVALS + size].view(torch.int64)
    data = here.workspaces[1][begin : begin + reference.MOST_BYTES].view(torch.float32)
    for i in range(1000):
        for tensor in (*here.workspaces, *here.statuses):
            tensor.zero_()
        torch.cuda.synchronize()
        here.launch(0, x, out, deadline=1 + 50 * (i % 100))
        failure = here.failures()[0]
        assert failure is not None and failure.round == 1
        arrived = arrivals.view(2, blocks, reference.MOST_RANKS, -1)[1, :, 0, 0] != 0
        assert (data.view(blocks, -1)[arrived] == 1).all(), f"time {i}"


def test_every_word_that_has_come_holds_its_data() -> None:
    """Also of a rank whose threads give up at any time."""
    here, x = World(2), torch.ones(reference.LL_BYTES // 4, device="cuda")
    out, begin = torch.empty_like(x), reference.words_at(1, 0, 2)
    words = here.workspaces[1][begin : begin + 2 * reference.LL_BYTES].view(torch.int64)
    one = int(reference.words(np.ones(1, np.float32).tobytes(), 1)[0])
    for i in range(300):
        for tensor in (*here.workspaces, *here.statuses):
            tensor.zero_()
        torch.cuda.synchronize()
        here.launch(0, x, out, deadline=1 + 50 * (i % 100), ll=True)
        failure = here.failures()[0]
        assert failure is not None and failure.round == 1
        assert ((words == one) | (words == 0)).all(), f"time {i}"


@BOTH
@pytest.mark.parametrize("other", ["size", "type", "protocol"])
def test_peers_with_other_arguments(other: str, ll: bool) -> None:
    here = World(2)
    others = {"size": torch.ones(512), "type": torch.ones(2048).half(), "protocol": torch.ones(1024)}
    xs = [torch.ones(1024, device="cuda"), others[other].to("cuda")]
    outs = [torch.empty_like(x) for x in xs]

    def launch(rank: int) -> None:
        here.launch(rank, xs[rank], outs[rank], deadline=600 * SECOND, ll=ll != (rank == 1 and other == "protocol"))

    here.everywhere(launch)
    causes = {failure.cause for failure in here.failures() if failure is not None}
    assert None not in here.failures() and Cause.OTHER_SHAPE in causes
    assert all(torch.isnan(out).all() for out in outs)


@BOTH
def test_what_one_peer_says_ends_the_wait_for_the_others(ll: bool) -> None:
    here = World(4)
    xs = {0: torch.ones(1024, device="cuda"), 2: torch.ones(512, device="cuda")}
    outs = {rank: torch.empty_like(x) for rank, x in xs.items()}
    torch.cuda.synchronize()
    for rank, x in xs.items():
        with torch.cuda.stream(here.streams[rank]):
            here.launch(rank, x, outs[rank], deadline=600 * SECOND, ll=ll)
    found = [failure for failure in here.failures() if failure is not None]
    assert Cause.OTHER_SHAPE in {failure.cause for failure in found} and [failure.peer for failure in found] == [2, 0]
    assert all(torch.isnan(out).all() for out in outs.values())


@BOTH
def test_counting_does_not_end(ll: bool) -> None:
    """2^45 rounds fit an arrival: eleven years of one every 10 microseconds."""
    here = World(2)
    here.count_from(2**40)
    x = torch.ones(4096, device="cuda")
    outs = [torch.zeros_like(x) for _ in range(2)]
    torch.cuda.synchronize()
    here.everywhere(lambda rank: here.launch(rank, x, outs[rank], ll=ll))
    assert here.failures() == [None, None] and all((out == 2).all() for out in outs)


def test_words_of_a_round_that_has_the_same_low_bits_are_gone() -> None:
    """Before a round has the low bits of one long ago, all words are stored anew."""
    here, flag = World(2), 7
    x, whole = torch.ones(4, device="cuda"), torch.ones(reference.LL_BYTES // 4, device="cuda")
    outs = [torch.zeros_like(whole) for _ in range(2)]
    for rank in (0, 1):
        words = here.workspaces[rank][reference.words_at(0, 0, 2) :].view(torch.int64)
        words.fill_(flag << 32)
    here.count_from(2**32 - 1)
    # CUDA loads a kernel when it is first launched, and may wait for those that run, which wait for ranks to come.
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    for number in range(2**32, 2**32 + flag + 1):
        # In the last round alone, all words are waited for.
        last = number == 2**32 + flag
        for rank in (0, 1):
            with torch.cuda.stream(here.streams[rank]):
                if last and rank:
                    torch.cuda._sleep(20_000_000)
                here.launch(rank, whole if last else x, outs[rank] if last else torch.empty_like(x), ll=True)
    assert here.failures() == [None, None] and all((out == 2).all() for out in outs)


@BOTH
def test_result_of_the_kernel_ahead_is_seen(ll: bool) -> None:
    here = World(2)
    sources = [rank_tasks.part(i, 61440, torch.bfloat16, 4, CUDA) for i in range(4)]
    xs = [torch.zeros_like(sources[0]) for _ in range(2)]
    outs = [[torch.empty_like(sources[0]) for _ in range(200)] for _ in range(2)]
    torch.cuda.synchronize()

    def step(rank: int) -> None:
        for i, out in enumerate(outs[rank]):
            torch.mul(sources[i % 4], 1, out=xs[rank])
            here.launch(rank, xs[rank], out, dependent=True, ll=ll)

    here.everywhere(step)
    assert here.failures() == [None, None]
    for mine in outs:
        for i, out in enumerate(mine):
            assert torch.equal(bits(out), bits((sources[i % 4].float() * 2).bfloat16()))


def test_status_must_be_pinned() -> None:
    here, x = World(2), torch.ones(16, device="cuda")
    with pytest.raises(RuntimeError, match=r"status: is at address \d+; expected one in pinned memory of the host"):
        p2p_allreduce(x, x.clone(), torch.zeros(1, dtype=torch.int64).data_ptr(), here.addresses, 0, SECOND)


WORLDS = [2, 4] if CARDS < 2 else [2, 4, 8]


@pytest.mark.parametrize("world", WORLDS)
def test_processes_are_correct(world: int) -> None:
    assert ranks.run(world, rank_tasks.correct) == [4 * len(rank_tasks.SIZES) * len(op.DTYPES)] * world


@pytest.mark.parametrize("world", WORLDS[:2])
def test_processes_have_the_same_bits_in_a_thousand_runs(world: int) -> None:
    digests = ranks.run(world, rank_tasks.repeated)
    assert all(mine == digests[0] for mine in digests)


def lost(found: dict[str, object], causes: set[Cause], peers: set[int]) -> None:
    """Checks what a rank that lost a peer returned."""
    failure = found["failure"]
    assert isinstance(failure, Failure) and failure.cause in causes and failure.peer in peers
    assert found["nan"] and isinstance(found["message"], str) and "drop them and use another" in found["message"]
    # A replay is 20 sums: one waited for the deadline, the others did not. The rest is the machine's.
    assert isinstance(found["seconds"], float) and found["seconds"] < rank_tasks.DEADLINE + 10


@pytest.mark.parametrize(("world", "victims"), [(2, [1]), (4, [2, 3])])
def test_killed_in_the_middle(world: int, victims: list[int]) -> None:
    """The others come back with an error within the deadline, and those with cards of their own go on with NCCL."""
    survivors = [rank for rank in range(world) if rank not in victims]
    with ranks.Ranks(world, rank_tasks.until_lost) as started:
        for rank in range(world):
            assert started.hear(rank) == "running"
        time.sleep(1.0)
        for victim in victims:
            started.signal(started.processes[victim].pid, signal.SIGKILL)
        started.leave(survivors)
        found = started.results(survivors)
    for mine in found:
        lost(mine, {Cause.DEADLINE, Cause.ABORTED}, set(range(world)))
        assert mine["nccl"] in (True, None) and (mine["nccl"] is None) == (len(survivors) > CARDS)
    assert Cause.DEADLINE in {mine["failure"].cause for mine in found}


def test_stopped_for_longer_than_the_deadline() -> None:
    """One that comes back finds that the others gave up; both go on anew, and with NCCL where each has a card."""
    with ranks.Ranks(2, rank_tasks.until_lost) as started:
        for rank in range(2):
            assert started.hear(rank) == "running"
        started.signal(started.processes[1].pid, signal.SIGSTOP)
        time.sleep(2 * rank_tasks.DEADLINE + 2)
        started.signal(started.processes[1].pid, signal.SIGCONT)
        started.leave([0, 1])
        found = started.results()
    assert [mine["failure"].cause for mine in found] == [Cause.DEADLINE, Cause.ABORTED]
    assert [mine["anew"] for mine in found] == [True, True]
    assert [mine["nccl"] for mine in found] == [True if CARDS >= 2 else None] * 2


@pytest.mark.parametrize("world", WORLDS[:2])
def test_a_peer_that_gave_up_is_heard_of_by_those_whose_sums_are_complete(world: int) -> None:
    found = ranks.run(world, rank_tasks.heard)
    # Four sums proved that it works, and one was everybody's.
    own, before, after = found[0]
    assert own == after and before is None
    assert own is not None and own.cause == Cause.DEADLINE and own.round == 6 and own.peer in range(1, world)
    assert found[1:] == [(None, None, Failure(Cause.ABORTED, 0, 6))] * (world - 1)


def test_torch_agrees_with_the_registration() -> None:
    here = World(2)
    x = torch.ones(16, device="cuda")
    # Every call of opcheck's waits for a peer that is not there, and says so in NaN; what is checked is the schema.
    arguments = (x, torch.empty_like(x), here.words[0], here.addresses, 0, 1000)
    checks = ["test_schema", "test_faketensor"]
    torch.library.opcheck(torch.ops.moet.p2p_allreduce.default, arguments, test_utils=checks)


def test_under_torch_compile() -> None:
    here, x = World(2), torch.ones(64, device="cuda")
    image_of_one = image(here.workspaces[0])
    reference.delivered(image_of_one, 1, 2, 1, bits(x * 3).cpu().numpy().tobytes(), "float32")
    here.workspaces[0].copy_(torch.from_numpy(image_of_one))

    def model(a: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        here.launch(0, a + 1, out)
        return out * 2

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), torch.full_like(x, 10))
    assert here.failures()[0] is None


@BOTH
def test_graph_of_a_dependent_chain(ll: bool) -> None:
    """Sums of sums, each launched dependently on the last, as plain launches have them."""
    here = World(2)
    results = []
    for dependent in (False, True):
        xs = [rank_tasks.part(rank, 5120, torch.float32, 5, CUDA) / 1024 for rank in range(2)]
        torch.cuda.synchronize()

        def chain(rank: int, xs: list[torch.Tensor] = xs, dependent: bool = dependent) -> None:
            for _ in range(60):
                here.launch(rank, xs[rank], xs[rank], dependent=dependent, ll=ll)

        here.everywhere(chain)
        assert here.failures() == [None, None]
        results.append([bits(x).clone() for x in xs])
    assert torch.equal(results[0][0], results[0][1])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
