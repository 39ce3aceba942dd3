"""What a library says of its launches: threads, shared memory and matrix instructions of each kernel.

A cubin knows nothing of the shared memory that a launch asks for. So a family's .cu writes its launch table into
a section of the library (kernels/common/launch_fact.h), made from the very constants that it launches with.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

SECTION = ".moet.launch"
_ENTRY = struct.Struct("<48s4i")


class FactsError(Exception):
    """A launch table that is absent or does not match the kernels; the message is one line for the user."""


@dataclass(frozen=True)
class Fact:
    """One launch: `kernel` and `form` name the kernel, shared memory is in bytes, `mma` counts matrix instructions."""

    kernel: str
    form: int
    threads: int
    dynamic_shared: int
    mma: int

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.kernel}<{self.form}>"

    def is_of(self, symbol: str) -> bool:
        """Whether `symbol` (mangled) is this kernel's: its name, and its form as the first template argument.

        >>> Fact("gemm", 3, 640, 0, 0).is_of("_ZN4moet6skinny4gemmILi3EEEvNS0_4ArgsE")
        True
        >>> Fact("gemm", 3, 640, 0, 0).is_of("_ZN4moet6skinny4gemmILi31EEEvNS0_4ArgsE")
        False
        """
        return f"{len(self.kernel)}{self.kernel}ILi{self.form}E" in symbol


def read(library: Path) -> list[Fact]:
    """Returns the launch table of a library.

    Raises FactsError when there is none.
    """
    with library.open("rb") as data:
        section = ELFFile(data).get_section_by_name(SECTION)
        if section is None:
            raise FactsError(f"{library.name}: no section {SECTION}; a .cu must have MOET_LAUNCH_FACTS")
        content = section.data()
    if not content or len(content) % _ENTRY.size:
        raise FactsError(f"{library.name}: section {SECTION} has {len(content)} bytes; expected {_ENTRY.size} a launch")
    facts = []
    for name, form, threads, dynamic_shared, mma in _ENTRY.iter_unpack(content):
        facts.append(Fact(name.rstrip(b"\0").decode(), form, threads, dynamic_shared, mma))
    return facts


def match(facts: list[Fact], symbols: list[str]) -> Mapping[str, Fact]:
    """Returns each kernel's fact, by symbol.

    Raises FactsError unless every kernel has exactly one, and every fact a kernel.
    """
    result = {}
    for symbol in symbols:
        of_it = [fact for fact in facts if fact.is_of(symbol)]
        if len(of_it) != 1:
            raise FactsError(f"kernel {symbol}: {len(of_it)} entries in the launch table; expected one")
        result[symbol] = of_it[0]
    unused = sorted(fact.name for fact in facts if fact not in result.values())
    if unused:
        raise FactsError(f"launch table: {', '.join(unused)}: no such kernel in the machine code")
    return result
