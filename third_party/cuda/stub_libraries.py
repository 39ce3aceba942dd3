"""Stands in for the NVIDIA libraries that torch links, so that it can be imported where they are not.

usage: stub_libraries.py --compiler G++ FOLDER

FOLDER has torch's libraries. Beside them comes one shared library for each that they need and nobody provides; every
function in it returns 1, which is a failure to all of NVIDIA's libraries. Nothing computes with them: a test that
needs a GPU does not belong where they are.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

# What every Linux has; the rest of what is needed is NVIDIA's.
_SYSTEM = ("ld-linux", "libc.", "libcuda.", "libdl.", "libgcc_s", "libgomp", "libm.", "libpthread.", "librt.")
_PYTHON = ("Py", "_Py")


class Needs:
    """What a set of shared libraries wants of others: names of libraries, and symbols by library and version."""

    def __init__(self) -> None:
        self.libraries: set[str] = set()
        self.versioned: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.unversioned: set[str] = set()
        self._defined: set[str] = set()

    def add(self, path: Path) -> None:
        """Adds one library."""
        with path.open("rb") as data:
            # pyelftools types sections by their common base.
            section: Callable[[str], Any] = ELFFile(data).get_section_by_name
            dynamic = section(".dynamic")
            self.libraries |= {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
            needed = section(".gnu.version_r")
            versions = {
                auxiliary.entry.vna_other: (library.name, auxiliary.name)
                for library, auxiliaries in (needed.iter_versions() if needed else ())
                for auxiliary in auxiliaries
            }
            numbers = section(".gnu.version")
            for index, symbol in enumerate(section(".dynsym").iter_symbols()):
                if symbol.entry.st_shndx != "SHN_UNDEF":
                    self._defined.add(symbol.name)
                elif symbol.name and symbol.entry.st_info.bind != "STB_WEAK":
                    version = versions.get(numbers.get_symbol(index).entry.ndx) if numbers else None
                    (self.versioned[version] if version else self.unversioned).add(symbol.name)

    def orphans(self) -> set[str]:
        """Symbols without a version that none of the libraries defines, and that are not Python's own."""
        return {name for name in self.unversioned - self._defined if not name.startswith(_PYTHON)}


def write_stub(path: Path, versions: dict[str, set[str]], orphans: set[str], compiler: str) -> None:
    """Links a shared library of functions that return 1.

    Args:
        path: where to; its name is the library's soname.
        versions: symbols by their version.
        orphans: symbols without a version.
        compiler: g++.
    """
    names = sorted(set().union(orphans, *versions.values()))
    labels = "".join(f".globl {name}\n.type {name},@function\n{name}:\n" for name in names)
    nodes = {version: "; ".join(sorted(symbols)) for version, symbols in sorted(versions.items())}
    script = "".join(f"{version} {{ {symbols}; }};\n" for version, symbols in nodes.items())
    with tempfile.TemporaryDirectory() as folder:
        assembly = Path(folder, "stub.s")
        assembly.write_text(f'.text\n{labels}mov $1,%eax\nret\n.section .note.GNU-stack,"",@progbits\n')
        command = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", "-Wl,--build-id=none"]
        command += ["-o", str(path), str(assembly)]
        if script:
            Path(folder, "versions").write_text(script)
            command.append(f"-Wl,--version-script={folder}/versions")
        subprocess.run(command, check=True)


def write_stubs(folder: Path, compiler: str) -> list[str]:
    """Writes a stub beside the libraries in `folder` for each that they need and that is absent; returns names."""
    needs = Needs()
    present = sorted(path for path in folder.iterdir() if ".so" in path.name)
    for path in present:
        needs.add(path)
    absent = needs.libraries - {path.name for path in present}
    missing = sorted(name for name in absent if not name.startswith((*_SYSTEM, "libstdc++")))
    for name in missing:
        versions = {version: symbols for (library, version), symbols in needs.versioned.items() if library == name}
        orphans = needs.orphans() if name == missing[0] else set()
        write_stub(folder / name, versions, orphans, compiler)
    return missing


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="stand in for the NVIDIA libraries that torch links")
    parser.add_argument("--compiler", required=True, help="g++, which assembles and links")
    parser.add_argument("folder", type=Path, help="torch's lib folder")
    args = parser.parse_args()
    write_stubs(args.folder, args.compiler)
    return 0


if __name__ == "__main__":
    sys.exit(main())
