"""Copies a library without its code for other GPUs, so that a library of a whole wheel is small to carry.

usage: python3 -m kernels.p2p_allreduce.baselines.one_architecture --sm 90 LIBRARY OUTPUT

Every other architecture's code, and all PTX, becomes zeros: nothing moves, the library loads as before, and compresses
to little more than the code that is left. On another GPU it has nothing to run.
"""

import argparse
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from tools.cli.errors import UserError
from tools.files import atomic

# A container in .nv_fatbin, as `cuobjdump --list-elf` walks it: magic, version, its header's bytes, bytes of entries.
_CONTAINER = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
# An entry: kind, version, its header's bytes, bytes of code; 28 bytes in, the architecture, which is 90 for sm_90a too.
_ENTRY = struct.Struct("<HHIQ")
_ARCHITECTURE = struct.Struct("<I")
_ARCHITECTURE_AT = 28
_MACHINE_CODE = 2


@dataclass(frozen=True)
class Code:
    """Code in a library: from where to where in the file, for which architecture, and whether it is PTX."""

    begin: int
    end: int
    architecture: int
    ptx: bool


def codes(library: bytes | bytearray, begin: int, end: int) -> Iterator[Code]:
    """All code in a library's .nv_fatbin, which is at `begin` to `end` of it; containers are padded with zeros."""
    at = begin
    while at + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack_from(library, at)
        if magic != _MAGIC:
            at += 8
            continue
        at, last = at + header, at + header + size
        while at < last:
            kind, _, entry, length = _ENTRY.unpack_from(library, at)
            (architecture,) = _ARCHITECTURE.unpack_from(library, at + _ARCHITECTURE_AT)
            yield Code(at + entry, at + entry + length, architecture, kind != _MACHINE_CODE)
            at += entry + length


def _fatbin(path: Path) -> tuple[int, int]:
    """Where a library's .nv_fatbin begins and ends in the file."""
    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".nv_fatbin")
    except (OSError, ELFError) as error:
        raise UserError(f"{path}: cannot be read as a library: {error}") from None
    if section is None:
        raise UserError(f"{path}: has no section .nv_fatbin; expected a library with code for GPUs")
    return int(section["sh_offset"]), int(section["sh_offset"] + section["sh_size"])


def narrowed(path: Path, architecture: int) -> bytes:
    """A library's bytes without other code. Raises UserError where it has no code for `architecture`."""
    begin, end = _fatbin(path)
    library = bytearray(path.read_bytes())
    found = list(codes(library, begin, end))
    if not any(one.architecture == architecture and not one.ptx for one in found):
        has = ", ".join(f"sm_{one}" for one in sorted({one.architecture for one in found if not one.ptx}))
        raise UserError(f"{path}: has no code for sm_{architecture}; expected one of {has or 'none'}")
    for one in found:
        if one.ptx or one.architecture != architecture:
            library[one.begin : one.end] = bytes(one.end - one.begin)
    return bytes(library)


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="copy a library without its code for other GPUs")
    parser.add_argument("--sm", type=int, required=True, help="the architecture that stays: 90, 120")
    parser.add_argument("library", type=Path, help="what to copy")
    parser.add_argument("output", type=Path, help="where to")
    args = parser.parse_args()
    try:
        atomic.write(args.output, narrowed(args.library, args.sm))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
