"""Ranks as processes of this machine, for tests and the bench: starts them, lets them meet, ends them."""

import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from kernels.p2p_allreduce.communicator import PeerAllReduce

# How long ranks may be silent.
PATIENCE_S = 240.0


class Rank:
    """What a rank's function gets: who it is, where it meets the others, and its communicator."""

    def __init__(self, rank: int, world: int, folder: Path, pipe: Connection) -> None:
        self.rank, self.world, self.folder = rank, world, folder
        self.device = torch.device("cuda", rank % torch.cuda.device_count())
        self._pipe = pipe
        self._meetings = 0

    def store(self, name: str, count: int) -> distributed.FileStore:
        """A store that `count` ranks share by name."""
        return distributed.FileStore(str(self.folder / name), count)

    def gather(self, value: Any, among: Sequence[int] | None = None) -> list[Any]:
        """Gives each rank of `among` (all, if None) what each passed; the same ranks must call, equally often."""
        members = list(range(self.world)) if among is None else list(among)
        self._meetings += 1
        name = f"meeting-{self._meetings}"
        (self.folder / f"{name}.{self.rank}.new").write_bytes(pickle.dumps(value))
        (self.folder / f"{name}.{self.rank}.new").rename(self.folder / f"{name}.{self.rank}")
        return [pickle.loads(_appeared(self.folder / f"{name}.{member}").read_bytes()) for member in members]

    def communicator(self, deadline_s: float, ll_bytes: int | None = None) -> PeerAllReduce:
        """Sets up peer memory among all ranks."""
        return PeerAllReduce(self.rank, self.device, self.gather, deadline_s, ll_bytes)

    def nccl(self, name: str, among: Sequence[int]) -> None:
        """Makes NCCL's group of `among` torch's default one."""
        distributed.init_process_group(
            "nccl",
            store=self.store(name, len(among)),
            rank=list(among).index(self.rank),
            world_size=len(among),
            timeout=timedelta(seconds=60),
            device_id=self.device,
        )

    def left(self) -> list[int]:
        """Waits until the parent says who is left (Ranks.leave())."""
        return [int(rank) for rank in _appeared(self.folder / "left").read_text().split()]

    def tell(self, what: Any) -> None:
        """Sends to the parent, which ranks.Ranks.hear() waits for."""
        self._pipe.send(("said", what))


def _appeared(path: Path, seconds: float = 120.0) -> Path:
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path.name}: the other rank did not come in {seconds:.0f} s")
        time.sleep(0.001)
    return path


def _body(function: Callable[[Rank], Any], rank: int, world: int, folder: str, pipe: Connection) -> None:
    try:
        me = Rank(rank, world, Path(folder), pipe)
        torch.cuda.set_device(me.device)
        pipe.send(("returned", function(me)))
    except BaseException:
        pipe.send(("raised", traceback.format_exc()))


class Ranks:
    """Processes that run a function each, which must be one that pickle finds by name."""

    def __init__(self, world: int, function: Callable[[Rank], Any]) -> None:
        # NVLink multicast is none of this family's affair, and not for every machine.
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        # Forked from a process that has imported torch, which takes seconds a process, and has no CUDA yet.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self.processes = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            arguments = (function, rank, world, self._folder.name, theirs)
            process = context.Process(target=_body, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            self.signal(process.pid, signal.SIGKILL)
            process.join()
        self._folder.cleanup()

    def signal(self, pid: int | None, number: signal.Signals) -> None:
        """Signals one of the processes, if it is still there."""
        if pid is not None and any(process.pid == pid and process.is_alive() for process in self.processes):
            os.kill(pid, number)

    def leave(self, members: Sequence[int]) -> None:
        """Says which ranks are left, which Rank.left() waits for."""
        beside = Path(self._folder.name, "left.new")
        beside.write_text(" ".join(map(str, members)))
        beside.rename(beside.with_suffix(""))

    def hear(self, rank: int, kind: str = "said", seconds: float = PATIENCE_S) -> Any:
        """Waits for what a rank tells. Raises AssertionError with its traceback where it raised, or ended, instead."""
        assert self._pipes[rank].poll(seconds), f"rank {rank}: nothing in {seconds:.0f} s"
        try:
            found, what = self._pipes[rank].recv()
        except EOFError:
            raise AssertionError(f"rank {rank} ended with status {self.processes[rank].exitcode}") from None
        assert found == kind, f"rank {rank}: {what}"
        return what

    def results(self, ranks: Sequence[int] | None = None, seconds: float = PATIENCE_S) -> list[Any]:
        """Waits for what the functions of `ranks` (all, if None) return.

        Raises AssertionError with what is wrong with the first that raised, or ended: the others may wait for it.
        """
        left = list(range(len(self._pipes)) if ranks is None else ranks)
        found: dict[int, Any] = {}
        end = time.monotonic() + seconds
        while waiting := [rank for rank in left if rank not in found]:
            ready = wait([self._pipes[rank] for rank in waiting], max(0.0, end - time.monotonic()))
            assert ready, f"ranks {waiting}: nothing in {seconds:.0f} s"
            found |= {rank: self.hear(rank, "returned") for rank in waiting if self._pipes[rank] in ready}
        return [found[rank] for rank in left]


def run(world: int, function: Callable[[Rank], Any], seconds: float = PATIENCE_S) -> list[Any]:
    """Runs a function on every rank of a world; returns what each returned. Raises AssertionError as results() does."""
    with Ranks(world, function) as ranks:
        return ranks.results(seconds=seconds)
