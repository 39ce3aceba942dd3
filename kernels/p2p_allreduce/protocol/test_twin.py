"""The protocol among processes on this machine: sums are right, and a killed rank leaves nobody waiting."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.p2p_allreduce import reference
from kernels.p2p_allreduce.protocol.twin import ABORTED, DEADLINE, OTHER_SHAPE, GaveUpError, Twin, create

FORK = multiprocessing.get_context("fork")
DEADLINE_S = 3.0
# Far more than a killed test would take, for a machine that does much else.
PATIENCE_S = 60.0
# Rounds of a world in which nobody dies.
HEALTHY = 300

# By which protocol a round is; True: the low-latency one.
PROTOCOLS: dict[str, Callable[[int], bool]] = {
    "simple": lambda _: False,
    "ll": lambda _: True,
    "mixed": lambda number: random.Random(number).random() < 0.5,
    "in turn": lambda number: number % 2 == 1,
    "simple at first": lambda number: number > 6,
}


def part(rank: int, number: int) -> np.ndarray:
    """What a rank adds in a round; sizes change from round to round."""
    generator = np.random.default_rng((rank, number))
    return generator.standard_normal(4 * (1 + number % 50)).astype(np.float32)


def right(world: Sequence[int], number: int) -> bytes:
    parts = np.stack([part(rank, number) for rank in world])
    return reference.allreduce(parts, "float32").tobytes()


def steps(protocol: str, number: int) -> int:
    """How many steps a round of 3 ranks has: for each peer, data or two halves of words, an arrival; a wait, a read."""
    return (8 if PROTOCOLS[protocol](number) else 6) + 2 * reference.ages(number)


class Death:
    """Kills its own process ahead of the n-th step that others can see."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, _: str) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def nothing(_: str) -> None:
    pass


def body(
    folder: Path, rank: int, world: int, rounds: int, protocol: str, before: Callable[[str], None], pipe: Connection
) -> None:
    """Sums until the end, or until it gives up; then, told who is left, sums among those."""
    twin = Twin(folder, rank, world, DEADLINE_S if rounds != HEALTHY else PATIENCE_S, before)
    completed, gave_up = 0, None
    for number in range(1, rounds + 1):
        try:
            total = twin.allreduce(part(rank, number), PROTOCOLS[protocol](number))
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
    sums = [
        again.allreduce(part(rank, number), PROTOCOLS[protocol](number)).tobytes() == right(left, number)
        for number in range(1, 20)
    ]
    pipe.send(all(sums))


class Ranks:
    """Processes of body(), ended in the end."""

    def __init__(
        self,
        folder: Path,
        protocols: Sequence[str],
        rounds: int,
        before: dict[int, Callable[[str], None]] | None = None,
        prepare: Callable[[Path, int], None] = lambda *_: None,
    ) -> None:
        world = len(protocols)
        create(folder, world)
        prepare(folder, world)
        self.folder = folder
        self.pipes: list[Connection] = []
        self.processes = []
        for rank, protocol in enumerate(protocols):
            ours, theirs = FORK.Pipe()
            arguments = (folder, rank, world, rounds, protocol, (before or {}).get(rank, nothing), theirs)
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


@pytest.mark.parametrize("protocol", ["simple", "ll", "mixed"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_sums_are_right(tmp_path: Path, world: int, protocol: str) -> None:
    with Ranks(tmp_path, [protocol] * world, HEALTHY) as ranks:
        assert [ranks.hear(rank) for rank in range(world)] == [(HEALTHY, None)] * world
    for rank in range(world):
        expected = np.zeros(reference.workspace_bytes(world), np.uint8)
        for number in range(1, HEALTHY + 1):
            for sender in set(range(world)) - {rank}:
                data, ll = part(sender, number).tobytes(), PROTOCOLS[protocol](number)
                reference.delivered(expected, sender, world, number, data, "float32", ll)
        reference.completed(expected, HEALTHY)
        assert (np.fromfile(tmp_path / f"workspace.{rank}", np.uint8) == expected).all()


# Ages words in rounds 3 and 4.
LATE = 5 * reference.ROUNDS_BETWEEN_AGINGS - 3


def make_late(folder: Path, world: int) -> None:
    """As if LATE rounds were completed, which left nothing but words of 2^32 rounds before rounds 7 and 8."""
    for rank in range(world):
        workspace = np.memmap(folder / f"workspace.{rank}", dtype=np.uint8, mode="r+")
        reference.completed(workspace, LATE)
        for number in (LATE + 7 - 2**32, LATE + 8 - 2**32):
            for sender in range(world):
                begin = reference.words_at(number % 2, sender, world)
                slot = workspace[begin : begin + 2 * reference.LL_BYTES].view(np.uint64)
                slot[:] = reference.words(bytes(reference.LL_BYTES), number)


@pytest.mark.parametrize("protocol", ["ll", "simple at first"])
def test_words_of_old_rounds_are_not_taken(tmp_path: Path, protocol: str) -> None:
    delays = iter([0.03] * 40)

    def before(step: str) -> None:
        # Long enough for the peers to find what is there instead.
        time.sleep(next(delays, 0) if step == "words" else 0)

    assert not reference.ages(LATE + 2) and reference.ages(LATE + 3)
    with Ranks(tmp_path, [protocol] * 3, HEALTHY, {1: before}, make_late) as ranks:
        assert [ranks.hear(rank) for rank in range(3)] == [(HEALTHY, None)] * 3


def test_ranks_of_other_protocols_give_up_at_once(tmp_path: Path) -> None:
    with Ranks(tmp_path, ["simple", "ll"], HEALTHY) as ranks:
        said = [ranks.hear(rank) for rank in range(2)]
        assert {completed for completed, _ in said} == {0}
        assert OTHER_SHAPE in {gave_up[0] for _, gave_up in said}
        assert {gave_up[1:] for _, gave_up in said} <= {(0, 1), (1, 1)}


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


# A round of the low-latency protocol or the other one, after one of the same or of the other; the first, which ages.
@pytest.mark.parametrize(
    ("protocol", "number", "step"),
    [("simple", 6, step) for step in range(steps("simple", 6))]
    + [("ll", 1, step) for step in range(2)]
    + [("ll", 6, step) for step in range(steps("ll", 6))]
    + [("in turn", 6, step) for step in range(steps("in turn", 6))],
)
def test_killed_ahead_of_every_step(tmp_path: Path, protocol: str, number: int, step: int) -> None:
    rounds = 20
    death = Death(sum(steps(protocol, before) for before in range(1, number)) + step)
    with Ranks(tmp_path, [protocol] * 3, rounds, {1: death}) as ranks:
        said = [ranks.hear(rank) for rank in (0, 2)]
        left_nobody_waiting(said, rounds, [0, 2])
        ranks.go_on([0, 2])


@pytest.mark.parametrize("seed", range(6))
def test_killed_from_outside(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    victims = generator.sample(range(4), 1 + seed % 2)
    survivors = [rank for rank in range(4) if rank not in victims]
    with Ranks(tmp_path, [["simple", "ll", "mixed"][seed % 3]] * 4, 10**9) as ranks:
        time.sleep(0.2 + generator.random() / 2)
        for victim in victims:
            ranks.processes[victim].kill()
        left_nobody_waiting([ranks.hear(rank) for rank in survivors], 10**9, survivors)
        ranks.go_on(survivors)


@pytest.mark.parametrize("protocol", ["simple", "ll", "mixed"])
def test_one_who_was_stopped_finds_that_the_others_gave_up(tmp_path: Path, protocol: str) -> None:
    with Ranks(tmp_path, [protocol] * 3, 10**9) as ranks:
        time.sleep(0.3)
        pid = ranks.processes[2].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        said = [ranks.hear(rank) for rank in (0, 1)]
        os.kill(pid, signal.SIGCONT)
        assert ranks.hear(2)[1][0] == ABORTED
        left_nobody_waiting(said, 10**9, [0, 1])
        ranks.go_on([0, 1, 2])
