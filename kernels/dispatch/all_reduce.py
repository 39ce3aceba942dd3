"""When p2p_allreduce sums for a tensor-parallel group, and why not where it does not.

It sums while a CUDA graph is captured, and so in every replay. What runs without a graph is larger, or warms up: ranks
that compile then come minutes apart, and a peer that is late is taken for lost.
"""

import contextlib
from collections.abc import Callable

import torch

from ..p2p_allreduce import op
from ..p2p_allreduce.communicator import Gather, PeerAllReduce, PeerMemoryError


class RefusedError(RuntimeError):
    """The ranks of a group do not sum over peer memory; the same on every rank."""


def refusal(
    *,
    ranks: int,
    sm120: bool,
    batch_invariant: bool,
    microbatches: bool,
    stages: int,
    graphs: bool,
    generates: bool,
) -> str | None:
    """Says why a rank may not sum over peer memory; None where it may.

    Args:
        ranks: of the group.
        sm120: whether the device has compute capability 12.0, for which the library has machine code.
        batch_invariant: whether a row's result may not depend on how many there are.
        microbatches: whether two halves of a batch are computed at the same time, each on its stream.
        stages: of the pipeline; of its ranks, the last stage's alone look whether a round failed.
        graphs: whether steps run as CUDA graphs.
        generates: whether results are tokens: others leave without a look at whether a round failed.
    """
    if not sm120:
        return "the device is not of compute capability 12.0"
    if not op.LEAST_RANKS <= ranks <= op.MOST_RANKS:
        return f"{ranks} ranks sum, not {op.LEAST_RANKS} to {op.MOST_RANKS}"
    if batch_invariant:
        return "batch invariance is asked for, which larger tensors would break"
    if microbatches:
        return "microbatches sum on two streams at the same time"
    if stages > 1:
        return f"the pipeline has {stages} stages"
    if not graphs:
        return "no step runs as a CUDA graph"
    if not generates:
        return "the model does not generate"
    return None


class Sums:
    """Sums of small tensors over the ranks of a group, in CUDA graphs."""

    def __init__(self, rank: int, device: torch.device, gather: Gather, refused: str | None) -> None:
        """Sets up peer memory among all ranks, which call this together.

        Args:
            rank: this one.
            device: its card.
            gather: among the ranks.
            refused: what refusal() says here. One rank's reason is every rank's.

        Raises RefusedError, on every rank, where peer memory is refused, or does not work.
        """
        said = gather(refused)
        if refused is not None and set(said) == {refused}:
            raise RefusedError(refused)
        if reasons := [f"rank {at}: {reason}" for at, reason in enumerate(said) if reason is not None]:
            raise RefusedError("; ".join(reasons))
        try:
            self._peers = PeerAllReduce(rank, device, gather)
        except PeerMemoryError as error:
            raise RefusedError(str(error)) from error
        # Of the capture that goes on.
        self._stream: int | None = None

    def takes(self, x: torch.Tensor) -> bool:
        """Whether a tensor is one for all_reduce(), which then sums it unless is_beside().

        Every rank says the same of its own: nothing is asked that ranks may differ in, such as an address.
        """
        if not torch.cuda.is_current_stream_capturing():
            self._stream = None
            return False
        size = x.numel() * x.element_size()
        return x.dtype in op.DTYPES and 0 < size <= op.MOST_BYTES and size % op.UNIT_BYTES == 0

    def is_beside(self) -> bool:
        """Whether the current stream is another one than that which the captured graph has summed on.

        A workspace is one stream's at a time. What comes between two captures, and is no capture, parts them.
        """
        stream = torch.cuda.current_stream().cuda_stream
        if self._stream is None:
            self._stream = stream
        return bool(stream != self._stream)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the sum of x over the ranks, a new tensor, contiguous.

        The launch is dependent: the kernel waits before it reads x.
        """
        if not op.fits(x):
            x = x.clone(memory_format=torch.contiguous_format)
        return self._peers.all_reduce(x, dependent=True)

    def begin_check(self) -> Callable[[], None]:
        """Looks for a round that was given up, on the current stream: call what it returns when that was waited for.

        It raises communicator.PeerLostError where this rank or a peer gave up: what was computed since is NaN.
        """
        return self._peers.begin_check()

    def close(self) -> None:
        """Unmaps the peers' memory. This rank's own stays to the end of the process: a peer may end later."""
        # A card that has failed says so of every call, and its mappings end with the process.
        with contextlib.suppress(RuntimeError):
            self._peers.close(peers_are_there=False)
