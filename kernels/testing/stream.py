"""A bare read of memory: what a kernel that must read some bytes can at best take on this GPU."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.testing import gpu

# Words a block and warps a block: 8 or 16 loads of 16 bytes a thread.
_TILINGS = [(4096, 4), (8192, 4), (8192, 8), (16384, 8)]


@triton.jit  # type: ignore[untyped-decorator]
def _read(  # type: ignore[no-untyped-def]
    source, words, out, block: tl.constexpr, ahead: tl.constexpr, behind: tl.constexpr
):
    if ahead or behind:
        tl.extra.cuda.gdc_launch_dependents()
    if behind:
        tl.extra.cuda.gdc_wait()
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(source + at, mask=at < words, other=0)
    if ahead:
        tl.extra.cuda.gdc_wait()
    total = tl.xor_sum(value, 0)
    tl.store(out, total, mask=total == 0x5EED)


def read(source: torch.Tensor, out: torch.Tensor, tiling: tuple[int, int], ahead: bool, behind: bool) -> None:
    """Reads all of `source`, int32; `out` has one.

    Args:
        source: what to read.
        out: written to in one case of 2^32, or the compiler would leave out the reads.
        tiling: words and warps a block.
        ahead: launch dependently, and read before the wait for the kernel ahead in the stream.
        behind: launch dependently, and read after it.
    """
    words = source.numel()
    grid = (triton.cdiv(words, tiling[0]),)
    _read[grid](source, words, out, tiling[0], ahead, behind, num_warps=tiling[1], launch_pdl=ahead or behind)


def microseconds(sources: Sequence[torch.Tensor], launches: int, dependent: bool) -> float:
    """The least time to read one of `sources`, over the tilings, and if `dependent` over the order of read and wait."""
    out = torch.zeros(1, dtype=torch.int32, device="cuda")

    def timed(tiling: tuple[int, int], ahead: bool) -> float:
        def step(i: int) -> None:
            read(sources[i % len(sources)], out, tiling, dependent and ahead, dependent and not ahead)

        return gpu.microseconds(step, launches)

    return min(timed(tiling, ahead) for tiling in _TILINGS for ahead in ((True, False) if dependent else (True,)))
