"""vLLM's custom all-reduce: the operators of its library, called as vLLM 0.33.0's CustomAllreduce calls them.

The library is vllm/_C_stable_libtorch.abi3.so of the wheel. Its operators (`_C_custom_ar`) need torch 2.11 or newer and
nothing of Python, so vLLM itself need not be installed.
"""

import subprocess
from pathlib import Path

import torch

from kernels.p2p_allreduce.baselines.way import Step, Way
from kernels.p2p_allreduce.ranks import Rank

NAME = "vLLM"
# custom_all_reduce.py: sums of up to `max_size`, and the table of pointers of what is registered.
_MOST_BYTES = 8 << 20
_RANK_DATA_BYTES = 8 << 20
_WORLDS = (2, 4, 6, 8)


def all_by_nvlink(matrix: str) -> bool:
    r"""Whether all GPUs reach each other by NVLink, from what `nvidia-smi topo -p2p n` prints.

    >>> all_by_nvlink(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n  X = Self")
    True
    """
    rows = [words for line in matrix.splitlines() if len(words := line.split()) > 2 and words[1:].count("X") == 1]
    cells = [cell for name, *row in rows if name.startswith("GPU") for cell in row]
    return bool(cells) and set(cells) <= {"X", "OK"}


class CustomAllReduce:
    """vLLM's, among all ranks."""

    def __init__(self, library: Path, me: Rank) -> None:
        """Loads the library and sets the ranks up. Raises OSError where it cannot be loaded."""
        torch.ops.load_library(library)
        self._ops, self._me = torch.ops._C_custom_ar, me
        self._meta = self._shared(self._ops.meta_size() + _MOST_BYTES)
        self._buffers = self._shared(_MOST_BYTES)
        self._rank_data = torch.empty(_RANK_DATA_BYTES, dtype=torch.uint8, device=me.device)
        linked = subprocess.run(["nvidia-smi", "topo", "-p2p", "n"], capture_output=True, text=True, check=False).stdout
        self._nvlink = all_by_nvlink(linked)
        self._state = self._ops.init_custom_ar(self._meta, self._rank_data, me.rank, self._nvlink)
        self._ops.register_buffer(self._state, self._buffers)
        me.gather(None)

    def way(self) -> Way:
        """It, for the bench."""
        return Way(NAME, self._prepare, self.captured)

    def _prepare(self, x: torch.Tensor) -> Step | None:
        """A step; None where vLLM would not use it (should_custom_ar and __init__ of CustomAllreduce)."""
        world, size = self._me.world, x.numel() * x.element_size()
        if world not in _WORLDS or not (world == 2 or self._nvlink) or size % 16 or size >= _MOST_BYTES:
            return None
        out = torch.empty_like(x)

        def step() -> torch.Tensor:
            # In a graph x itself is read by the peers, which captured() tells of it; elsewhere a copy is.
            graph = torch.cuda.is_current_stream_capturing()
            address, size = (0, 0) if graph else (self._buffers[self._me.rank], _MOST_BYTES)
            self._ops.all_reduce(self._state, x, out, address, size)
            return out

        return step

    def captured(self) -> None:
        """Tells all ranks of what was captured since; each calls it."""
        handle, offsets = self._ops.get_graph_buffer_ipc_meta(self._state)
        all_of = self._me.gather((list(handle), list(offsets)))
        self._ops.register_graph_buffers(self._state, [one[0] for one in all_of], [one[1] for one in all_of])

    def close(self) -> None:
        """Frees its memory, when no rank uses it any more."""
        torch.cuda.synchronize()
        self._me.gather(None)
        self._ops.dispose(self._state)
        for addresses in (self._meta, self._buffers):
            self._ops.free_shared_buffer(addresses[self._me.rank])

    def _shared(self, size: int) -> list[int]:
        own, handle = self._ops.allocate_shared_buffer_and_handle(size)
        handles = self._me.gather(handle)
        return [own if rank == self._me.rank else self._ops.open_mem_handle(one) for rank, one in enumerate(handles)]
