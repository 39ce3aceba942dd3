"""Ranks of one host that sum tensors through each other's memory: setting up, proving that it works, taking down."""

import contextlib
import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from . import op

T = TypeVar("T")

# Gives every rank what each of them passed, in order of rank; all call it equally often.
Gather = Callable[[Any], list[Any]]

# Long enough for a peer that compiles a kernel while the others wait for it.
DEADLINE_SECONDS = 30.0

# Bytes of x times peers up to which the low-latency protocol, which sends twice as much, is taken to be the sooner one:
# PCIe 5.0 with 16 lanes moves so much in the 1.5 us that it saves over NVLink (README.md).
LL_BYTES_TO_PEERS = 80 * 1024

_PROOF_ROUNDS = 4


class PeerMemoryError(RuntimeError):
    """Peer memory cannot be used by these ranks; the same on every rank, with each rank's reason."""


class PeerLostError(RuntimeError):
    """A round was given up; `failure` says why. What the kernels wrote since is NaN."""

    def __init__(self, failure: op.Failure) -> None:
        super().__init__(f"p2p_allreduce: {failure}; results since then are NaN: drop them and use another all-reduce")
        self.failure = failure


class _Word:
    """An int64 of device memory that torch did not allocate, as torch.as_tensor() takes it without a copy."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {"shape": (1,), "typestr": "<i8", "data": (address, False), "version": 3}


def _word_at(address: int, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_Word(address), device=device)


def _boot() -> str:
    """Names this start of this host: processes with the same one share its memory."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else platform.node()


def _tried(step: Callable[[], T]) -> tuple[T | None, str | None]:
    """What a step returns, or in a line why it cannot: who raised here would leave the others waiting."""
    try:
        return step(), None
    except (RuntimeError, AssertionError) as error:
        return None, (str(error).splitlines() or [type(error).__name__])[0]


def _problem_with(device: torch.device, cards: list[tuple[str, str]]) -> str | None:
    """Why this rank cannot write to the memory of all `cards`, which are (host, UUID); None where it can."""
    here = {str(torch.cuda.get_device_properties(i).uuid): i for i in range(torch.cuda.device_count())}
    for rank, (host, uuid) in enumerate(cards):
        if host != _boot():
            return f"rank {rank} is on another host; expected all on one"
        if uuid not in here:
            return f"the card of rank {rank} is not visible; expected all of them in CUDA_VISIBLE_DEVICES"
        index = here[uuid]
        if index != device.index and not torch.cuda.can_device_access_peer(device.index, index):
            return f"{device} cannot reach the memory of cuda:{index}; nvidia-smi topo -p2p w says what it can reach"
    return None


def _ll_bytes(world: int) -> int:
    """Up to how many bytes of x the low-latency protocol is used, where nobody says."""
    return min(op.LL_BYTES, LL_BYTES_TO_PEERS // max(1, world - 1) // op.UNIT_BYTES * op.UNIT_BYTES)


def _problem_with_limits(limits: list[int]) -> str | None:
    """What is wrong with the ranks' ll_bytes; None where nothing is."""
    if len(set(limits)) > 1:
        return f"ll_bytes are {', '.join(map(str, limits))} by rank; expected the same on all"
    if not 0 <= limits[0] <= op.LL_BYTES or limits[0] % op.UNIT_BYTES:
        return f"ll_bytes is {limits[0]}; expected a multiple of {op.UNIT_BYTES} up to {op.LL_BYTES}"
    return None


def _raise_if(failure: op.Failure | None) -> None:
    if failure is not None:
        raise PeerLostError(failure)


class PeerAllReduce:
    """All-reduce of small tensors over peer memory among the ranks of one host, one a process.

    Used by one stream at a time. Launches can be captured in a CUDA graph.
    """

    def __init__(
        self,
        rank: int,
        device: torch.device,
        gather: Gather,
        deadline_s: float = DEADLINE_SECONDS,
        ll_bytes: int | None = None,
    ) -> None:
        """Maps the workspaces of all ranks, and proves with a few sums that they work.

        Args:
            rank: this rank.
            device: its card, with an index.
            gather: among the ranks.
            deadline_s: seconds to wait for a peer in a round.
            ll_bytes: up to how many bytes of x the low-latency protocol is used, the same on every rank: a multiple of
                16 up to op.LL_BYTES; where None, so many that LL_BYTES_TO_PEERS leave a rank.

        Raises PeerMemoryError, on every rank, where one of them cannot.
        """
        self.rank, self.device = rank, device
        self._gather = gather
        self._deadline_ns = int(deadline_s * 1e9)
        self._own = 0
        self._workspaces: list[int] = []
        card, problem = _tried(self._card)
        cards = gather(card)
        self.world = len(cards)
        self._agree(problem)
        self._ll_bytes = _ll_bytes(self.world) if ll_bytes is None else ll_bytes
        self._agree(_problem_with_limits(gather(self._ll_bytes)))
        self._agree(*_tried(lambda: _problem_with(device, cards)))
        handle, problem = _tried(self._exported)
        handles = gather(handle)
        self._agree(problem)
        self._agree(_tried(lambda: self._open(handles))[1])
        self._agree(*_tried(self._first_wrong_sum))

    def all_reduce(self, x: torch.Tensor, out: torch.Tensor | None = None, *, dependent: bool = False) -> torch.Tensor:
        """Returns the sum of x over the ranks, in `out`, or in a new tensor; op.fits() says which x it takes.

        Raises PeerLostError once a round has been given up, RuntimeError naming an argument that does not fit.
        """
        self.check()
        if out is None:
            out = torch.empty_like(x)
        status = self._status.data_ptr()
        ll = x.nbytes <= self._ll_bytes
        op.p2p_allreduce(x, out, status, self._workspaces, self.rank, self._deadline_ns, dependent=dependent, ll=ll)
        return out

    def failure(self) -> op.Failure | None:
        """Why a round was given up, as far as the card has said; final after the stream has been waited for."""
        return op.Failure.of(int(self._status.item()))

    def check(self) -> None:
        """Raises PeerLostError where a round was given up: to be called when a graph's replay has ended, too."""
        _raise_if(self.failure())

    def begin_check(self) -> Callable[[], None]:
        """Returns what raises PeerLostError where this rank or a peer gave up, once the current stream was waited for.

        A round may be complete here and given up by a peer, whose results are NaN from there on. If they came here by
        another way, they came after its word that it gave up, which this copies to the host on the current stream.
        """
        told = self._told.to("cpu", non_blocking=True)
        return lambda: _raise_if(self.failure() or op.Failure.of(int(told.item())))

    def close(self, peers_are_there: bool = True) -> None:
        """Unmaps the peers' memory and frees this rank's; no launch may be in flight.

        Args:
            peers_are_there: every rank closes, so that none frees what another has mapped. If not, or if one cannot
                unmap it, this rank's memory is left to the end of the process.

        Raises RuntimeError where CUDA does; no other rank is left waiting.
        """
        mapped = [address for rank, address in enumerate(self._workspaces) if rank != self.rank]
        self._workspaces = []
        unmap = functools.partial(torch.ops.moet.p2p_close, self.device.index)
        problems = [problem for address in mapped if (problem := _tried(functools.partial(unmap, address))[1])]
        if peers_are_there and not any(self._gather(bool(problems))) and self._own:
            torch.ops.moet.p2p_release(self.device.index, self._own)
            self._own = 0
        if problems:
            raise RuntimeError(problems[0])

    def _agree(self, *problems: str | None) -> None:
        """Raises PeerMemoryError where any rank has a problem: the first of those here that is one."""
        mine = next((problem for problem in problems if problem is not None), None)
        said = [f"rank {rank}: {problem}" for rank, problem in enumerate(self._gather(mine)) if problem is not None]
        if said:
            with contextlib.suppress(RuntimeError):
                self.close()
            raise PeerMemoryError(f"p2p_allreduce: {'; '.join(said)}")

    def _card(self) -> tuple[str, str]:
        """The host and the card of this rank."""
        self._status = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        return _boot(), str(torch.cuda.get_device_properties(self.device).uuid)

    def _exported(self) -> list[int]:
        """Allocates the workspace; returns its handle."""
        self._own = torch.ops.moet.p2p_allocate(self.device.index, self.world)
        return list(torch.ops.moet.p2p_export(self.device.index, self._own))

    def _open(self, handles: list[list[int]]) -> None:
        for rank, handle in enumerate(handles):
            opened = self._own if rank == self.rank else torch.ops.moet.p2p_open(self.device.index, handle)
            self._workspaces.append(opened)
        self._told = _word_at(self._own + op.TOLD, self.device)

    def _first_wrong_sum(self) -> str | None:
        """Sums integers, which have no rounding, by both protocols in turn; says what came out wrong."""
        for number in range(_PROOF_ROUNDS):
            count = (op.MOST_BYTES if number % 2 else self._ll_bytes or op.MOST_BYTES) // 4
            ramp = torch.arange(count, device=self.device, dtype=torch.float32) % 1024
            part = ramp * (self.rank + 1) + number
            found = self.all_reduce(part)
            torch.cuda.synchronize(self.device)
            self.check()
            expected = ramp * (self.world * (self.world + 1) // 2) + number * self.world
            if wrong := int((found != expected).sum().item()):
                return f"{wrong} of {count} sums came out wrong through peer memory; the platform's P2P is broken"
        return None
