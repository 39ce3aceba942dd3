"""The protocols of p2p_allreduce in Python, among processes that map the workspaces as files: for tests without a GPU.

They are simple.cuh and ll.cuh step by step, with one block, in the layout of reference.py. The fences have no
counterpart: Python performs its stores in order, and so do the processors that this runs on (x86-64).
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.p2p_allreduce import reference

DEADLINE, ABORTED, OTHER_SHAPE = 1, 2, 3
_FAILED = 0
_DTYPE = "float32"
# What an arrival of one round has more than the same one of the round before.
_A_ROUND = reference.arrival(1, 0, _DTYPE) - reference.arrival(0, 0, _DTYPE)


class GaveUpError(Exception):
    """A rank gave up a round: the cause, the peer and the round, as the kernel leaves them for the host."""

    def __init__(self, failure: int) -> None:
        super().__init__(f"cause {failure & 0xFF}, peer {failure >> 8 & 0xFF}, round {failure >> 16}")
        self.cause, self.peer, self.round = failure & 0xFF, failure >> 8 & 0xFF, failure >> 16


def create(folder: Path, world: int) -> None:
    """Makes the workspaces of a world, zeroed, as files in a folder."""
    for rank in range(world):
        with (folder / f"workspace.{rank}").open("wb") as file:
            file.truncate(reference.workspace_bytes(world))


class Twin:
    """A rank of a world whose workspaces create() has made.

    Args:
        folder: theirs.
        rank: this one.
        world: number of ranks.
        deadline_s: seconds to wait for a peer.
        before: called with a name ahead of every step that others can see.
    """

    def __init__(
        self, folder: Path, rank: int, world: int, deadline_s: float, before: Callable[[str], None] = lambda _: None
    ) -> None:
        self.rank, self.world = rank, world
        self._deadline_s = deadline_s
        self._before = before
        self._workspaces = [np.memmap(folder / f"workspace.{r}", dtype=np.uint8, mode="r+") for r in range(world)]
        self._own = self._workspaces[rank]
        self._peers = [(rank + i) % world for i in range(1, world)]

    def allreduce(self, x: NDArray[np.float32], ll: bool = False) -> NDArray[np.float32]:
        """Returns the sum over the ranks, by the low-latency protocol or the simple one.

        Raises GaveUpError as the kernel writes NaN and a failure.
        """
        if failure := self._word(self._own, _FAILED):
            raise GaveUpError(failure)
        number = self._word(self._own, reference.ROUNDS) + 1
        units = x.nbytes // reference.UNIT_BYTES
        arrival = reference.arrival(number, units, _DTYPE, ll)
        if reference.ages(number):
            self._age(number, units if ll else 0)
        parts = self._by_ll(x, number, arrival) if ll else self._by_simple(x, number, arrival)
        total = reference.allreduce(np.stack([parts[r] for r in range(self.world)]), _DTYPE)
        reference.completed(self._own, number)
        return total

    def _by_simple(self, x: NDArray[np.float32], number: int, arrival: int) -> dict[int, NDArray[np.float32]]:
        """Every rank's part of a round."""
        data = x.tobytes()
        for peer in self._peers:
            self._before("data")
            begin = reference.data_at(number % 2, self.rank, self.world)
            self._workspaces[peer][begin : begin + len(data)] = np.frombuffer(data, np.uint8)
        self._arrive(number, arrival)
        self._before("wait")
        for peer in self._peers:
            self._wait_for(peer, number, partial(self._has_arrived, peer, number, arrival))
        self._before("read")
        begins = {peer: reference.data_at(number % 2, peer, self.world) for peer in self._peers}
        read = {p: np.asarray(self._own[b : b + len(data)]).view(np.float32).copy() for p, b in begins.items()}
        return read | {self.rank: x}

    def _by_ll(self, x: NDArray[np.float32], number: int, arrival: int) -> dict[int, NDArray[np.float32]]:
        """Every rank's part of a round."""
        places = reference.word_places(x.nbytes // reference.UNIT_BYTES)
        words = reference.words(x.tobytes(), number).reshape(places.shape)
        # They come in any order, so in the one that is worst for a peer that takes an arrival for the words'.
        self._arrive(number, arrival)
        for peer in self._peers:
            slot = self._slot(peer, number, self.rank)
            for half in (slice(0, 2), slice(2, 4)):
                self._before("words")
                slot[places[:, half]] = words[:, half]
        self._before("wait")
        parts = {self.rank: x}
        for peer in self._peers:
            data, missing = np.empty(places.shape, np.uint32), np.ones(len(places), bool)
            self._wait_for(peer, number, partial(self._take, peer, number, data, missing))
            self._wait_for(peer, number, partial(self._has_arrived, peer, number, arrival))
            parts[peer] = data.ravel().view(np.float32)
        self._before("read")
        return parts

    def _take(self, peer: int, number: int, data: NDArray[np.uint32], missing: NDArray[np.bool_]) -> bool:
        """Takes the missing units whose words are of a round; whether all have been taken."""
        flag = number & 0xFFFFFFFF
        slot = self._slot(self.rank, number, peer)
        units = np.flatnonzero(missing)
        # Data and flag are of one load: a later one may find both changed.
        found = slot[reference.word_places(len(missing))[units]]
        are_of = (found >> np.uint64(32) == flag).all(axis=1)
        data[units[are_of]] = found[are_of].astype(np.uint32)
        missing[units[are_of]] = False
        return not missing.any()

    def _age(self, number: int, first: int) -> None:
        """Stores all words anew that are not of the first units, with the flag of the round before."""
        units = reference.LL_BYTES // reference.UNIT_BYTES
        places = reference.word_places(units)[first:].ravel()
        for peer in self._peers:
            self._before("age")
            self._slot(peer, number, self.rank)[places] = reference.words(bytes(4 * len(places)), number - 1)

    def _slot(self, owner: int, number: int, sender: int) -> NDArray[np.uint64]:
        begin = reference.words_at(number % 2, sender, self.world)
        return np.asarray(self._workspaces[owner][begin : begin + 2 * reference.LL_BYTES]).view(np.uint64)

    def _arrive(self, number: int, arrival: int) -> None:
        for peer in self._peers:
            self._before("arrival")
            self._store(self._workspaces[peer], reference.arrival_at(number % 2, 0, self.rank), arrival)

    def _has_arrived(self, peer: int, number: int, arrival: int) -> bool:
        seen = self._word(self._own, reference.arrival_at(number % 2, 0, peer))
        if seen != arrival and seen // _A_ROUND == number:
            self._fail(number << 16 | peer << 8 | OTHER_SHAPE, number)
        return seen == arrival

    def _wait_for(self, peer: int, number: int, is_there: Callable[[], bool]) -> None:
        end = time.monotonic() + self._deadline_s
        while not is_there():
            if told := self._word(self._own, reference.TOLD):
                self._fail(told, number)
            if time.monotonic() > end:
                self._fail(number << 16 | peer << 8 | DEADLINE, number)
            time.sleep(0)

    def _fail(self, failure: int, number: int) -> None:
        self._store(self._own, _FAILED, failure)
        for other in self._peers:
            self._store(self._workspaces[other], reference.TOLD, number << 16 | self.rank << 8 | ABORTED)
        raise GaveUpError(failure)

    def _word(self, workspace: NDArray[np.uint8], at: int) -> int:
        return int(workspace[at : at + 8].view(np.uint64)[0])

    def _store(self, workspace: NDArray[np.uint8], at: int, value: int) -> None:
        workspace[at : at + 8].view(np.uint64)[0] = value
