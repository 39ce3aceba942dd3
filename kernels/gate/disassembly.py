"""What nvdisasm and cuobjdump say of a cubin: instructions by kind, registers, memory."""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_FUNCTION = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")

# Counted by their full names: matrix instructions, and the widths of memory accesses.
_IN_FULL = ("HMMA", "IMMA", "LDG", "LDGSTS", "LDL", "LDS", "LDSM", "OMMA", "QMMA", "STG", "STL", "STS")
MATRIX = ("HMMA", "IMMA", "OMMA", "QMMA")
# From global memory, to registers or to shared memory.
LOADS = ("LDG", "LDGSTS", "UBLKCP")
# Local memory: a spill, or an array indexed at run time.
FORBIDDEN = ("LDL", "STL")


# Until it has run, what the kernel ahead writes is not there yet (griddepcontrol.wait).
WAIT = "ACQBULK"


def instructions(listing: str) -> Mapping[str, list[str]]:
    """Names of the instructions in their order, by kernel, in what `nvdisasm -c` prints.

    >>> text = '''	.section	.text.k,"ax",@progbits
    ...         /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
    ...         /*0010*/               @P0 STL [R1], R4 ;'''
    >>> instructions(text)
    {'k': ['LDG.E.128', 'STL']}
    """
    kernels: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listing.splitlines():
        if section := _SECTION.match(line):
            current = kernels.setdefault(section[1], [])
        elif instruction := _INSTRUCTION.match(line):
            current.append(instruction[1])
    return kernels


def census(names: Sequence[str]) -> dict[str, int]:
    """Counts of instructions: some by their full names, the rest by opcode.

    >>> census(["LDG.E.128", "FADD.FTZ", "FADD", "LDG.E.128"])
    {'FADD': 2, 'LDG.E.128': 2}
    """
    opcodes = [name.split(".")[0] for name in names]
    counts = Counter(name if opcode in _IN_FULL else opcode for name, opcode in zip(names, opcodes, strict=True))
    return dict(sorted(counts.items()))


def total(names: Sequence[str], opcodes: Sequence[str]) -> int:
    """How many instructions have one of these opcodes.

    >>> total(["LDL.64", "LDG.E", "STL"], FORBIDDEN)
    2
    """
    return sum(name.split(".")[0] in opcodes for name in names)


def before_wait(names: Sequence[str]) -> Sequence[str]:
    """The instructions ahead of the wait for the kernel before; all where there is none.

    >>> before_wait(["LDG.E.128", "ACQBULK", "LDG.E.128"])
    ['LDG.E.128']
    """
    return names[: names.index(WAIT)] if WAIT in names else names


@dataclass(frozen=True)
class Resources:
    """What a kernel takes: registers a thread; bytes of stack and local memory a thread, of static shared a block."""

    registers: int
    stack: int
    shared: int
    local: int


def resources(listing: str) -> Mapping[str, Resources]:
    r"""Reads what `cuobjdump --dump-resource-usage` prints, by kernel.

    >>> resources(" Function k:\n  REG:24 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:0 TEXTURE:0")
    {'k': Resources(registers=24, stack=0, shared=1024, local=0)}
    """
    return {
        match[1]: Resources(int(match[2]), int(match[3]), int(match[4]), int(match[5]))
        for match in _FUNCTION.finditer(listing)
    }


def run(program: Path, *arguments: str | Path) -> str:
    """Runs one of the two programs; returns what it prints."""
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout
