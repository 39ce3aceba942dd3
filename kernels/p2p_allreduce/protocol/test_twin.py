"""The protocol among processes on this machine: sums are right, and a killed rank leaves nobody waiting."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.p2p_allreduce import reference
from kernels.p2p_allreduce.protocol.twin import ABORTED, DEADLINE, GaveUpError, Twin, create

FORK = multiprocessing.get_context("fork")
DEADLINE_S = 3.0
# Far more than a killed test would take, for a machine that does much else.
PATIENCE_S = 60.0
# Rounds of a world in which nobody dies.
HEALTHY = 300


def part(rank: int, number: int) -> np.ndarray:
    """What a rank adds in a round; sizes change from round to round."""
    generator = np.random.default_rng((rank, number))
    return generator.standard_normal(4 * (1 + number % 50)).astype(np.float32)


def right(world: Sequence[int], number: int) -> bytes:
    parts = np.stack([part(rank, number) for rank in world])
    return reference.allreduce(parts, "float32").tobytes()


class Death:
    """Kills its own process ahead of the n-th step that others can see."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, _: str) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def body(folder: Path, rank: int, world: int, rounds: int, death: int | None, pipe: Connection) -> None:
    """Sums until the end, or until it gives up; then, told who is left, sums among those."""
    deadline = DEADLINE_S if rounds != HEALTHY else PATIENCE_S
    twin = Twin(folder, rank, world, deadline, Death(death) if death is not None else lambda _: None)
    completed, gave_up = 0, None
    for number in range(1, rounds + 1):
        try:
            total = twin.allreduce(part(rank, number))
        except GaveUpError as error:
            gave_up = (error.cause, error.peer, error.round)
            break
        if total.tobytes() != right(range(world), number):
            pipe.send(f"round {number}: wrong sum")
            return
        completed = number
    pipe.send((completed, gave_up))
    left: list[int] = pipe.recv()
    again = Twin(folder / "left", left.index(rank), len(left), PATIENCE_S)
    sums = [again.allreduce(part(rank, number)).tobytes() == right(left, number) for number in range(1, 20)]
    pipe.send(all(sums))


class Ranks:
    """Processes of body(), ended in the end."""

    def __init__(self, folder: Path, world: int, rounds: int, deaths: dict[int, int] | None = None) -> None:
        create(folder, world)
        self.folder = folder
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(world):
            ours, theirs = FORK.Pipe()
            arguments = (folder, rank, world, rounds, (deaths or {}).get(rank), theirs)
            self.processes.append(FORK.Process(target=body, args=arguments, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def hear(self, rank: int) -> Any:
        assert self.pipes[rank].poll(PATIENCE_S), f"rank {rank} said nothing"
        return self.pipes[rank].recv()

    def go_on(self, left: list[int]) -> None:
        """Those who are left sum among themselves, as they would through another library."""
        (self.folder / "left").mkdir()
        create(self.folder / "left", len(left))
        for rank in left:
            self.pipes[rank].send(left)
        assert [self.hear(rank) for rank in left] == [True] * len(left)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_sums_are_right(tmp_path: Path, world: int) -> None:
    with Ranks(tmp_path, world, HEALTHY) as ranks:
        assert [ranks.hear(rank) for rank in range(world)] == [(HEALTHY, None)] * world


def left_nobody_waiting(said: list[Any], rounds: int, survivors: list[int]) -> None:
    """Checks what survivors said: the first to give up had a deadline, the others were told or had one too.

    Whose deadline passes may name one who waits as well: that one completed a round less.
    """
    for completed, gave_up in said:
        assert gave_up is not None and completed < rounds
        cause, peer, number = gave_up
        assert cause in (DEADLINE, ABORTED) and number in (completed, completed + 1, completed + 2)
        assert cause == DEADLINE or peer in survivors
    assert DEADLINE in {gave_up[0] for _, gave_up in said}
    counts = [completed for completed, _ in said]
    assert max(counts) - min(counts) <= 1


# A rank's round has 2 stores of data, 2 arrivals, a wait and a read, each of which it may not come to.
@pytest.mark.parametrize("step", range(2 * 6))
def test_killed_ahead_of_every_step(tmp_path: Path, step: int) -> None:
    rounds = 20
    with Ranks(tmp_path, 3, rounds, {1: 6 * 5 + step}) as ranks:
        said = [ranks.hear(rank) for rank in (0, 2)]
        left_nobody_waiting(said, rounds, [0, 2])
        ranks.go_on([0, 2])


@pytest.mark.parametrize("seed", range(6))
def test_killed_from_outside(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    victims = generator.sample(range(4), 1 + seed % 2)
    survivors = [rank for rank in range(4) if rank not in victims]
    with Ranks(tmp_path, 4, 10**9) as ranks:
        time.sleep(0.2 + generator.random() / 2)
        for victim in victims:
            ranks.processes[victim].kill()
        left_nobody_waiting([ranks.hear(rank) for rank in survivors], 10**9, survivors)
        ranks.go_on(survivors)


def test_one_who_was_stopped_finds_that_the_others_gave_up(tmp_path: Path) -> None:
    with Ranks(tmp_path, 3, 10**9) as ranks:
        time.sleep(0.3)
        pid = ranks.processes[2].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        said = [ranks.hear(rank) for rank in (0, 1)]
        os.kill(pid, signal.SIGCONT)
        assert ranks.hear(2)[1][0] == ABORTED
        left_nobody_waiting(said, 10**9, [0, 1])
        ranks.go_on([0, 1, 2])
