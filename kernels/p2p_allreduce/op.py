"""The sum of a tensor over ranks, each of which pushes its part into the others' memory, in one launch."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..extension import library

library.load("p2p_allreduce")

LEAST_RANKS, MOST_RANKS = 2, 8
UNIT_BYTES = 16
MOST_BYTES = 512 * 1024
# By the low-latency protocol.
LL_BYTES = 128 * 1024
# Where a workspace has the failure of a peer that gave up (workspace.cuh).
TOLD = 256
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Cause(enum.IntEnum):
    """Why a round was given up."""

    DEADLINE = 1
    ABORTED = 2
    OTHER_SHAPE = 3


_WORDS = {
    Cause.DEADLINE: "did not arrive within the deadline",
    Cause.ABORTED: "had given up",
    Cause.OTHER_SHAPE: "came with another size, type or protocol",
}


@dataclass(frozen=True)
class Failure:
    """Why a rank gave up: what was wrong with which peer, in which round (from 1).

    A peer that did not arrive may itself be waiting for another, which is the one that is lost.
    """

    cause: Cause
    peer: int
    round: int

    @classmethod
    def of(cls, word: int) -> "Failure | None":
        """Reads the word that the kernel leaves; None where it is 0."""
        return cls(Cause(word & 0xFF), word >> 8 & 0xFF, word >> 16) if word else None

    def __str__(self) -> str:
        """In a few words."""
        return f"rank {self.peer} {_WORDS[self.cause]}, in round {self.round}"


def _fake(
    x: torch.Tensor,
    out: torch.Tensor,
    status: int,
    workspaces: Sequence[int],
    rank: int,
    deadline_ns: int,
    dependent: bool = False,
    ll: bool = False,
) -> None:
    del status, workspaces, rank, deadline_ns, dependent, ll
    torch._check(out.shape == x.shape, lambda: "p2p_allreduce: out: expected the shape of x")


torch.library.register_fake("moet::p2p_allreduce", _fake)


def fits(x: torch.Tensor) -> bool:
    """Whether p2p_allreduce takes this tensor: its type, its size in memory and where it begins."""
    size = x.numel() * x.element_size()
    return (
        x.dtype in DTYPES
        and x.is_contiguous()
        and 0 < size <= MOST_BYTES
        and size % UNIT_BYTES == 0
        and x.data_ptr() % UNIT_BYTES == 0
    )


def p2p_allreduce(
    x: torch.Tensor,
    out: torch.Tensor,
    status: int,
    workspaces: Sequence[int],
    rank: int,
    deadline_ns: int,
    *,
    dependent: bool = False,
    ll: bool = False,
) -> None:
    """Writes the sum of x over all ranks to out. Every rank calls it, in the same order, on one stream at a time.

    The sum is in fp32, in order of rank, and rounded once: the same bits on every rank and in every run. Where a peer
    does not come, out has NaN, status has the failure (Failure.of), and every later launch ends at once with NaN alone.

    Args:
        x: bfloat16, float16 or float32; contiguous, a multiple of 16 bytes up to 512 KiB, aligned to 16.
        out: as x; may be x.
        status: address of an int64 in pinned memory of the host, 0.
        workspaces: address of every rank's workspace, as p2p_allocate and p2p_open return it.
        rank: this one.
        deadline_ns: nanoseconds to wait for a peer.
        dependent: launch so that the kernel may be there before the one ahead of it in the stream has ended.
        ll: use the low-latency protocol, on every rank: sooner there, but twice the bytes; for x up to 128 KiB.

    Raises RuntimeError naming the argument that does not fit.
    """
    torch.ops.moet.p2p_allreduce(x, out, status, workspaces, rank, deadline_ns, dependent, ll)
