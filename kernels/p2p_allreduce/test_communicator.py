"""Setting up and taking down, by threads that stand for ranks: what one lacks, all say, and none waits for ever."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.p2p_allreduce import communicator, op
from kernels.p2p_allreduce.communicator import PeerAllReduce, PeerLostError, PeerMemoryError

WORLD = 3
CARD = torch.device("cpu", 0)
PATIENCE_S = 30.0


class Host:
    """What stands for the cards: memory is a number, and the operator sums over the threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.barrier = threading.Barrier(WORLD)
        self.said: list[Any] = [None] * WORLD
        self.mine = threading.local()
        self.memory: set[int] = set()
        self.mapped: list[tuple[int, int]] = []
        self.told = [torch.zeros(1, dtype=torch.int64) for _ in range(WORLD)]
        self.error = 0.0
        # Of every rank's sums, the bytes and whether they were by the low-latency protocol.
        self.by_ll: list[list[tuple[int, bool]]] = [[] for _ in range(WORLD)]
        self.fails: dict[str, int] = {}
        zeros = torch.zeros
        monkeypatch.setattr(torch, "zeros", lambda *size, pin_memory=False, **more: zeros(*size, **more))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=f"card-{self.card()}"))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda own, other: True)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
        monkeypatch.setattr(communicator, "_word_at", self._word)
        for name in ("allocate", "export", "open", "close", "release"):
            monkeypatch.setattr(torch.ops.moet, f"p2p_{name}", self._failing(name, getattr(self, f"_{name}")))
        monkeypatch.setattr(op, "p2p_allreduce", self._sum)

    def card(self) -> int:
        return 0

    def gather(self, value: Any) -> list[Any]:
        self.said[self.mine.rank] = value
        self.barrier.wait(PATIENCE_S)
        found = list(self.said)
        self.barrier.wait(PATIENCE_S)
        return found

    def everywhere(self, function: Callable[[int], Any]) -> list[Any]:
        """Runs a function of each rank in a thread; returns what each returned or raised."""
        results: list[Any] = [None] * WORLD

        def body(rank: int) -> None:
            self.mine.rank = rank
            try:
                results[rank] = function(rank)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(WORLD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def set_up(self, **more: Any) -> list[Any]:
        return self.everywhere(lambda rank: PeerAllReduce(rank, CARD, self.gather, **more))

    def _failing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self.fails.get(name) == self.mine.rank:
                raise RuntimeError(f"p2p_{name}: no such luck")
            return function(*arguments)

        return call

    def _allocate(self, device: int, world: int) -> int:
        assert (device, world) == (0, WORLD)
        self.memory.add(100 + self.mine.rank)
        return 100 + int(self.mine.rank)

    def _export(self, device: int, address: int) -> list[int]:
        return [device, address]

    def _open(self, device: int, handle: list[int]) -> int:
        assert handle[1] in self.memory and handle[1] != 100 + self.mine.rank
        self.mapped.append((self.mine.rank, handle[1]))
        return handle[1]

    def _word(self, address: int, device: torch.device) -> torch.Tensor:
        assert address == 100 + self.mine.rank + op.TOLD
        return self.told[self.mine.rank]

    def _close(self, device: int, address: int) -> None:
        self.mapped.remove((self.mine.rank, address))

    def _release(self, device: int, address: int) -> None:
        assert all(other != address for _, other in self.mapped), "freed what another rank has mapped"
        self.memory.remove(address)

    def _sum(self, x: torch.Tensor, out: torch.Tensor, *arguments: Any, dependent: bool, ll: bool) -> None:
        _, workspaces, rank, _ = arguments
        assert workspaces == [100, 101, 102] and rank == self.mine.rank and not dependent
        self.by_ll[rank].append((x.nbytes, ll))
        out.copy_(torch.stack(self.gather(x.clone())).sum(dim=0) + self.error)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_sums_and_is_taken_down(host: Host) -> None:
    ranks = host.set_up()
    assert all(isinstance(one, PeerAllReduce) and one.world == WORLD for one in ranks), ranks
    sums = host.everywhere(lambda rank: ranks[rank].all_reduce(torch.full((4,), rank + 1.0)).tolist())
    assert sums == [[6.0] * 4] * WORLD
    assert len(host.mapped) == WORLD * (WORLD - 1)
    assert host.everywhere(lambda rank: ranks[rank].close()) == [None] * WORLD
    assert not host.mapped and not host.memory


@pytest.mark.parametrize(("limit", "most"), [(None, 40960), (4096, 4096), (op.LL_BYTES, op.LL_BYTES), (0, 0)])
def test_small_tensors_take_the_low_latency_protocol(host: Host, limit: int | None, most: int) -> None:
    """And the proof takes both, where both are used; with two peers, the limit of what is sent is twice that of x."""
    ranks = host.set_up(ll_bytes=limit)
    proofs = [(most or op.MOST_BYTES, most > 0), (op.MOST_BYTES, False)] * 2
    assert host.by_ll == [proofs] * WORLD
    for size in (16, most, most + 16):
        if size:
            x = torch.ones(size // 4)
            host.everywhere(lambda rank, x=x: ranks[rank].all_reduce(x))  # type: ignore[misc]
            assert [mine[-1] for mine in host.by_ll] == [(size, size <= most)] * WORLD


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((16, 32, 16), "ll_bytes are 16, 32, 16 by rank; expected the same on all"),
        ((-16,) * 3, "ll_bytes is -16; expected a multiple of 16 up to 131072"),
        ((24,) * 3, "ll_bytes is 24; expected a multiple of 16 up to 131072"),
        ((131088,) * 3, "ll_bytes is 131088; expected a multiple of 16 up to 131072"),
    ],
)
def test_limits_that_cannot_be(host: Host, limits: tuple[int, ...], expected: str) -> None:
    for error in host.everywhere(lambda rank: PeerAllReduce(rank, CARD, host.gather, ll_bytes=limits[rank])):
        assert isinstance(error, PeerMemoryError)
        assert str(error) == f"p2p_allreduce: {'; '.join(f'rank {rank}: {expected}' for rank in range(WORLD))}"
    assert not host.mapped and not host.memory


def test_memory_stays_where_peers_are_lost(host: Host) -> None:
    ranks = host.set_up()
    assert host.everywhere(lambda rank: ranks[rank].close(peers_are_there=False)) == [None] * WORLD
    assert not host.mapped and len(host.memory) == WORLD


@pytest.mark.parametrize("name", ["allocate", "export", "open"])
def test_what_one_rank_lacks_all_say(host: Host, name: str) -> None:
    host.fails = {name: 1}
    errors = host.set_up()
    assert [str(error) for error in errors] == [f"p2p_allreduce: rank 1: p2p_{name}: no such luck"] * WORLD
    assert all(isinstance(error, PeerMemoryError) for error in errors)
    assert not host.mapped and not host.memory


def test_another_host(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "_boot", lambda: f"host-{host.mine.rank // 2}")
    for error in host.set_up():
        assert "rank 0: rank 2 is on another host; expected all on one" in str(error)
        assert "rank 2: rank 0 is on another host; expected all on one" in str(error)


def test_a_card_that_is_not_visible(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "card", lambda: host.mine.rank // 2)
    expected = "rank 0: the card of rank 2 is not visible; expected all of them in CUDA_VISIBLE_DEVICES"
    assert all(isinstance(error, PeerMemoryError) and expected in str(error) for error in host.set_up())


def test_a_card_out_of_reach(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    second = torch.device("cpu", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda d: SimpleNamespace(uuid=d in (1, second)))
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda own, other: False)
    for error in host.everywhere(lambda rank: PeerAllReduce(rank, second if rank == 2 else CARD, host.gather)):
        assert isinstance(error, PeerMemoryError)
        assert "rank 0: cpu:0 cannot reach the memory of cuda:1; nvidia-smi topo -p2p w says" in str(error)


def test_memory_that_does_not_hold_what_was_written(host: Host) -> None:
    host.error = 1.0
    for error in host.set_up():
        assert isinstance(error, PeerMemoryError)
        assert "rank 2: 10240 of 10240 sums came out wrong through peer memory" in str(error)


def test_a_failure_ends_it(host: Host) -> None:
    ranks = host.set_up()
    one = ranks[0]
    assert one.failure() is None
    one._status.fill_(7 << 16 | 2 << 8 | 1)
    with pytest.raises(PeerLostError, match="rank 2 did not arrive within the deadline, in round 7; results"):
        one.all_reduce(torch.ones(4))


def test_what_a_peer_says_is_found_where_the_own_rounds_are_complete(host: Host) -> None:
    ranks = host.set_up()
    # As a rank that gives up writes it into the others' workspaces.
    host.told[1].fill_(9 << 16 | 2 << 8 | 2)
    after = ranks[1].begin_check()
    assert ranks[1].failure() is None
    ranks[1].check()
    with pytest.raises(PeerLostError, match="rank 2 had given up, in round 9; results since then are NaN"):
        after()
    for one in (ranks[0], ranks[2]):
        one.begin_check()()


def test_the_own_failure_is_said_first(host: Host) -> None:
    one = host.set_up()[1]
    check = one.begin_check()
    host.told[1].fill_(9 << 16 | 2 << 8 | 2)
    one._status.fill_(9 << 16 | 0 << 8 | 1)
    for asked in (check, one.begin_check()):
        with pytest.raises(PeerLostError, match="rank 0 did not arrive within the deadline, in round 9"):
            asked()


def test_a_word_that_cannot_be_read_is_said_by_all(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(address: int, device: torch.device) -> torch.Tensor:
        if host.mine.rank == 2:
            raise RuntimeError("no such memory")
        return host.told[0]

    monkeypatch.setattr(communicator, "_word_at", fails)
    assert [str(error) for error in host.set_up()] == ["p2p_allreduce: rank 2: no such memory"] * WORLD
    assert not host.mapped and not host.memory


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (torch, "zeros"),
        (torch.cuda, "get_device_properties"),
        (torch.cuda, "device_count"),
        (torch.cuda, "synchronize"),
    ],
)
def test_an_error_of_one_rank_is_said_by_all_in_one_line(
    host: Host, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    works = getattr(owner, name)

    def fails(*arguments: Any, **more: Any) -> Any:
        if host.mine.rank == 1:
            raise RuntimeError("CUDA error: no such luck\nPerhaps of another call.")
        return works(*arguments, **more)

    monkeypatch.setattr(owner, name, fails)
    monkeypatch.setattr(communicator, "_PROOF_ROUNDS", 1)
    errors = host.set_up()
    assert [str(error) for error in errors] == ["p2p_allreduce: rank 1: CUDA error: no such luck"] * WORLD
    assert all(isinstance(error, PeerMemoryError) for error in errors)
    assert not host.mapped and not host.memory


@pytest.mark.parametrize("name", ["close", "release"])
def test_where_taking_down_fails_the_first_reason_is_said(host: Host, name: str) -> None:
    """And no rank frees what another still has mapped."""
    host.fails, host.error = {name: 1}, 1.0
    for error in host.set_up():
        assert isinstance(error, PeerMemoryError) and "sums came out wrong" in str(error)
    assert host.memory == ({100, 101, 102} if name == "close" else {101})


def test_memory_stays_where_one_rank_cannot_unmap_it(host: Host) -> None:
    ranks = host.set_up()
    host.fails = {"close": 1}
    none, error, nothing = host.everywhere(lambda rank: ranks[rank].close())
    assert none is None and nothing is None
    assert isinstance(error, RuntimeError) and str(error) == "p2p_close: no such luck"
    assert host.mapped == [(1, 100), (1, 102)] and host.memory == {100, 101, 102}
