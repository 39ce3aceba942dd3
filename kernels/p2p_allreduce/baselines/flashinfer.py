"""FlashInfer's PCIe all-reduce: the library that its just-in-time build makes of csrc/pcie_ipc_all_reduce.cu.

It is loaded by apache-tvm-ffi, without FlashInfer's own Python, and called as PcieIpcAllReduceWorkspace calls it
(flashinfer-python 0.7.2.post1, comm/pcie_ipc_ar.py). FlashInfer measures which of its launch configurations is the
fastest for each size (comm/pcie_ipc_tuning.py); so does this, over the same ones.
"""

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernels.p2p_allreduce.baselines.ipc import SharedMemory
from kernels.p2p_allreduce.baselines.way import Step, Way, total
from kernels.p2p_allreduce.ranks import Rank

NAME = "FlashInfer PCIe"
_WORLDS = (2, 4, 8)
_MOST_BLOCKS = 128
_BLOCKS = (1, 2, 4, 8, 12, 16, 32, 64, 96, 128)
_THREADS = (64, 128, 256, 512, 1024)

# Median microseconds of a step, the same on every rank.
Timed = Callable[[Step], float]


class Config(NamedTuple):
    """A launch; `variant` is a fi::Variant of pcie_ipc_all_reduce.cuh."""

    variant: int
    blocks: int
    threads: int


def configs(world: int) -> list[Config]:
    """Every launch on multiprocessors that takes any size (_is_launchable of comm/pcie_ipc_policy.py).

    Unstaged, staged, staged in a ring, and with eight ranks flat; those by copy engines are for large tensors.
    """
    variants = {2: (0, 1), 4: (0, 1, 2), 8: (0, 1, 2, 3)}[world]
    found = (Config(*one) for one in itertools.product(variants, _BLOCKS, _THREADS))
    return [one for one in found if world < 8 or one.variant != 1 or one.blocks % 4 == 0]


class PcieAllReduce:
    """FlashInfer's, among all ranks."""

    def __init__(self, library: Path, me: Rank, most_bytes: int, timed: Timed) -> None:
        """Loads the library and sets the ranks up.

        Args:
            library: pcie_ipc_comm.so.
            me: this rank.
            most_bytes: of the largest sum.
            timed: measures a step, to choose among configurations.

        Raises ImportError without apache-tvm-ffi, RuntimeError where the library does not load or CUDA fails.
        """
        self._me, self._timed = me, timed
        self._ffi: Any = importlib.import_module("tvm_ffi")
        self._module: Any = self._ffi.load_module(str(library))
        self._memory: SharedMemory | None = None
        if me.world not in _WORLDS:
            return
        layout = (most_bytes // 2, 2, _MOST_BLOCKS)
        self._memory = SharedMemory(me, self._module.pcie_ipc_workspace_size(me.world, *layout))
        self._state = self._module.pcie_ipc_init(self._memory.addresses, me.rank, *layout)
        torch.cuda.synchronize()
        me.gather(None)

    def way(self) -> Way:
        """It, for the bench."""
        return Way(NAME, self._prepare)

    def _prepare(self, x: torch.Tensor) -> Step | None:
        if self._memory is None:
            return None
        _, fastest = min((self._measured(x, config), config) for config in configs(self._me.world))
        return self._step(x, fastest)

    def _measured(self, x: torch.Tensor, config: Config) -> float:
        """Microseconds; infinite where it sums wrongly on any rank, as FlashInfer leaves such ones out."""
        step = self._step(x, config)
        right = torch.equal(step(), total(self._me.world, x.numel(), x.device))
        return self._timed(step) if all(self._me.gather(right)) else float("inf")

    def _step(self, x: torch.Tensor, config: Config) -> Step:
        out = torch.empty_like(x)
        device = self._ffi.device("cuda", self._me.device.index)

        def step() -> torch.Tensor:
            stream = torch.cuda.current_stream().cuda_stream
            with self._ffi.use_raw_stream(device, stream):
                launch = (config.blocks, config.threads, config.variant, False)
                self._module.pcie_ipc_all_reduce(self._state, x, out, *launch)
            return out

        return step

    def close(self) -> None:
        """Frees its memory, when no rank uses it any more."""
        torch.cuda.synchronize()
        self._me.gather(None)
        if self._memory is not None:
            self._module.pcie_ipc_dispose(self._state)
            self._memory.close()
