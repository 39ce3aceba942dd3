"""The protocol of p2p_allreduce in Python, among processes that map the workspaces as files: for tests without a GPU.

It is op.cu step by step, with one block, in the layout of reference.py. The fences have no counterpart: Python performs
its stores in order, and so do the processors that this runs on (x86-64).
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.p2p_allreduce import reference

DEADLINE, ABORTED = 1, 2
_FAILED = 0
_DTYPE = "float32"


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

    def allreduce(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the sum over the ranks. Raises GaveUpError as the kernel writes NaN and a failure."""
        if failure := self._word(self._own, _FAILED):
            raise GaveUpError(failure)
        number = self._word(self._own, reference.ROUNDS) + 1
        data = x.tobytes()
        peers = [(self.rank + i) % self.world for i in range(1, self.world)]
        for peer in peers:
            self._before("data")
            begin = reference.data_at(number % 2, self.rank, self.world)
            self._workspaces[peer][begin : begin + len(data)] = np.frombuffer(data, np.uint8)
        arrival = reference.arrival(number, len(data) // reference.UNIT_BYTES, _DTYPE)
        for peer in peers:
            self._before("arrival")
            self._store(self._workspaces[peer], reference.arrival_at(number % 2, 0, self.rank), arrival)
        self._before("wait")
        for peer in peers:
            self._wait_for(peer, number, arrival)
        self._before("read")
        parts = [x if r == self.rank else self._part(r, number, len(data)) for r in range(self.world)]
        total = reference.allreduce(np.stack(parts), _DTYPE)
        self._store(self._own, reference.ROUNDS, number)
        return total

    def _part(self, sender: int, number: int, size: int) -> NDArray[np.float32]:
        begin = reference.data_at(number % 2, sender, self.world)
        return np.asarray(self._own[begin : begin + size]).view(np.float32).copy()

    def _wait_for(self, peer: int, number: int, arrival: int) -> None:
        end = time.monotonic() + self._deadline_s
        while self._word(self._own, reference.arrival_at(number % 2, 0, peer)) != arrival:
            if told := self._word(self._own, reference.TOLD):
                self._fail(told, number)
            if time.monotonic() > end:
                self._fail(number << 16 | peer << 8 | DEADLINE, number)
            time.sleep(0)

    def _fail(self, failure: int, number: int) -> None:
        self._store(self._own, _FAILED, failure)
        for other in range(self.world):
            if other != self.rank:
                self._store(self._workspaces[other], reference.TOLD, number << 16 | self.rank << 8 | ABORTED)
        raise GaveUpError(failure)

    def _word(self, workspace: NDArray[np.uint8], at: int) -> int:
        return int(workspace[at : at + 8].view(np.uint64)[0])

    def _store(self, workspace: NDArray[np.uint8], at: int, value: int) -> None:
        workspace[at : at + 8].view(np.uint64)[0] = value
