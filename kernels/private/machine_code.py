"""Checks which architectures an object or a library has machine code for, and takes one out.

usage: machine_code.py --cuobjdump FILE --architecture SM ... [--extract SM --output FILE] OBJECT
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_ELEMENT = re.compile(r"^ELF file\s+\d+: (\S+\.(sm_\d+[a-z]?)\.cubin)$", re.MULTILINE)


class MachineCodeError(Exception):
    """Machine code other than what was asked for; the message is one line for the user."""


def elements(listing: str) -> list[tuple[str, str]]:
    r"""File name and architecture of each cubin in what `cuobjdump --list-elf` prints.

    >>> elements("ELF file    1: op.1.sm_90a.cubin\nELF file    2: op.2.sm_120a.cubin\n")
    [('op.1.sm_90a.cubin', 'sm_90a'), ('op.2.sm_120a.cubin', 'sm_120a')]
    """
    return [(match[1], match[2]) for match in _ELEMENT.finditer(listing)]


def list_elements(cuobjdump: Path, file: Path) -> list[tuple[str, str]]:
    """File name and architecture of each cubin in an object or library."""
    done = subprocess.run([cuobjdump, "--list-elf", file], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineCodeError(f"{file.name}: cuobjdump cannot read it: {done.stderr.strip()}")
    return elements(done.stdout)


def check(name: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises MachineCodeError unless `found` is every architecture of `wanted`, equally often, and no other."""
    counts = {architecture: found.count(architecture) for architecture in {*found, *wanted}}
    if set(found) != set(wanted) or len(set(counts.values())) != 1:
        raise MachineCodeError(
            f"{name}: has machine code for {', '.join(found) or 'nothing'}; expected {', '.join(wanted)}, each as often"
        )


def extract(cuobjdump: Path, file: Path, element: str, output: Path) -> None:
    """Writes one cubin, by its name in the list, to `output`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(cuobjdump.resolve()), "--extract-elf", element, str(file.resolve())]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        shutil.copyfile(Path(folder, element), output)


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="check the architectures of machine code, and take one out")
    parser.add_argument("--cuobjdump", type=Path, required=True, help="the program")
    parser.add_argument("--architecture", action="append", required=True, help="expected; may be repeated")
    parser.add_argument("--extract", required=True, help="the architecture to take out")
    parser.add_argument("--output", type=Path, required=True, help="where to")
    parser.add_argument("object", type=Path, help="what nvcc wrote from one .cu file")
    args = parser.parse_args()
    try:
        found = list_elements(args.cuobjdump, args.object)
        check(args.object.name, [architecture for _, architecture in found], args.architecture)
        element = next(name for name, architecture in found if architecture == args.extract)
        extract(args.cuobjdump, args.object, element, args.output)
    except MachineCodeError as error:
        print(f"machine code: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
