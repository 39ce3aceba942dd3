"""Peer memory without a GPU, among ranks that are processes.

Memory is a number. A sum goes to the real operator first, whose checks must find nothing amiss but that no GPU holds
the tensor, and is then computed by the oracle from what gloo gathers. The ranks' words are in memory that they share.
"""

import multiprocessing
import socket
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stand_ins import on_no_gpu

RANKS = 4
WORKSPACE = 1 << 20


class Words:
    """Of every rank: what its peers told it, and what its own sums say; made ahead of the ranks, which share it."""

    def __init__(self) -> None:
        self.told, self.status = (torch.zeros(RANKS, dtype=torch.int64).share_memory_() for _ in range(2))


class PeerMemory:
    """A rank's peer memory; `sums` are the shapes that it summed, `calls` what the set-up did."""

    def __init__(self, rank: int, words: Words, patch: pytest.MonkeyPatch) -> None:
        from moet_kernels.p2p_allreduce import communicator, op

        self.rank, self.words = rank, words
        self.sums: list[tuple[int, ...]] = []
        self.calls: list[tuple[Any, ...]] = []
        # The name of what fails here, and whether the next sum is given up.
        self.fails: str | None = None
        self.gives_up = False
        self._real = op.p2p_allreduce
        zeros, words_at = torch.zeros, self.words.status[rank : rank + 1]
        pinned = lambda *size, pin_memory=False, **more: words_at if pin_memory else zeros(*size, **more)  # noqa: E731
        patch.setattr(torch, "zeros", pinned)
        patch.setattr(
            torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"card {_index(device)}")
        )
        patch.setattr(torch.cuda, "device_count", lambda: RANKS)
        patch.setattr(torch.cuda, "can_device_access_peer", lambda *_: True)
        patch.setattr(torch.cuda, "synchronize", lambda *_: None)
        patch.setattr(communicator, "_word_at", self._word)
        patch.setattr(op, "p2p_allreduce", self._sum)
        for name in ("allocate", "export", "open", "close", "release"):
            patch.setattr(torch.ops.moet, f"p2p_{name}", self._call(name))
        # The set-up proves itself with tensors on its card.
        arange = torch.arange
        patch.setattr(torch, "arange", lambda count, **more: arange(count, dtype=more.get("dtype")))

    def _call(self, name: str) -> Callable[..., Any]:
        returns: dict[str, Callable[..., Any]] = {
            "allocate": lambda *given: WORKSPACE * (given[0] + 1),
            "export": lambda *given: [given[1]],
            "open": lambda *given: given[1][0],
        }

        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if name == self.fails:
                raise RuntimeError(f"p2p_{name}: no such luck")
            return returns[name](*arguments) if name in returns else None

        return call

    def _word(self, address: int, device: torch.device) -> torch.Tensor:
        from moet_kernels.p2p_allreduce import reference

        assert (address, device.index) == (WORKSPACE * (self.rank + 1) + reference.TOLD, self.rank)
        return self.words.told[self.rank : self.rank + 1]

    def _sum(self, x: torch.Tensor, out: torch.Tensor, *given: Any, dependent: bool, ll: bool) -> None:
        from moet_kernels.p2p_allreduce import reference

        status, workspaces, rank, deadline = given
        with on_no_gpu("p2p_allreduce"):
            self._real(x, out, status, workspaces, rank, deadline, dependent=dependent, ll=ll)
        assert status == self.words.status[self.rank :].data_ptr()
        assert workspaces == [WORKSPACE * (peer + 1) for peer in range(RANKS)]
        assert rank == self.rank
        self.sums.append(tuple(x.shape))
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        torch.distributed.all_gather(parts, x)
        if self.gives_up:
            # As the kernel does: first the others hear of it, then the host.
            word = len(self.sums) << 16 | rank << 8 | 2
            self.words.told[[peer for peer in range(RANKS) if peer != rank]] = word
            self.words.status[rank] = len(self.sums) << 16 | ((rank + 1) % RANKS) << 8 | 1
            out.fill_(float("nan"))
            return
        values = torch.stack(parts).flatten(1).float().numpy()
        out.copy_(torch.from_numpy(reference.allreduce(values, str(x.dtype).removeprefix("torch."))).view(x.shape))


def _index(device: Any) -> int:
    return device if isinstance(device, int) else int(device.index)


def _member(rank: int, body: Callable[..., Any], arguments: tuple[Any, ...], results: Any) -> None:
    torch.set_num_threads(1)
    try:
        results.put((rank, body(rank, *arguments), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))


def everywhere(body: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Runs body(rank, port, *arguments) in a process for each rank; returns what each returned, in order of rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    forked = multiprocessing.get_context("fork")
    results = forked.Queue()
    given = (port, *arguments)
    members = [forked.Process(target=_member, args=(rank, body, given, results)) for rank in range(RANKS)]
    for process in members:
        process.start()
    found: dict[int, Any] = {}
    try:
        for _ in members:
            rank, returned, error = results.get(timeout=240)
            assert error is None, f"rank {rank}:\n{error}"
            found[rank] = returned
    finally:
        for process in members:
            process.join(10)
            process.kill()
    return [found[rank] for rank in range(RANKS)]
