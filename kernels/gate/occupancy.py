"""How many blocks of a kernel run at a time on one multiprocessor of sm_120.

Figures: CUDA C++ Programming Guide, compute capability 12.0.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of a multiprocessor; shared memory in bytes."""

    warps: int
    blocks: int
    registers: int
    shared: int
    shared_a_block: int
    shared_reserved_a_block: int
    shared_unit: int
    registers_unit_a_warp: int


SM_120 = Multiprocessor(
    warps=48,
    blocks=24,
    registers=65536,
    shared=100 * 1024,
    shared_a_block=99 * 1024,
    shared_reserved_a_block=1024,
    shared_unit=128,
    registers_unit_a_warp=256,
)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def blocks(threads: int, registers: int, shared: int, on: Multiprocessor = SM_120) -> int:
    """Returns how many blocks fit; 0 when a block does not fit at all.

    Args:
        threads: threads a block.
        registers: registers a thread.
        shared: shared memory a block in bytes, without what the runtime reserves.
        on: the multiprocessor.

    >>> blocks(threads=256, registers=168, shared=48 * 1024)
    1
    >>> blocks(threads=640, registers=48, shared=1024)
    2
    >>> blocks(threads=256, registers=32, shared=99 * 1024 + 1)
    0
    """
    if shared > on.shared_a_block:
        return 0
    warps = -(-threads // 32)
    by_registers = on.registers // (warps * _round_up(max(registers, 1) * 32, on.registers_unit_a_warp))
    by_shared = on.shared // _round_up(shared + on.shared_reserved_a_block, on.shared_unit)
    return min(on.blocks, on.warps // warps, by_registers, by_shared)
