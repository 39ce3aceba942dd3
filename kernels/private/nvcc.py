"""Compiles one .cu file to the same bytes wherever and whenever it runs.

usage: nvcc.py --nvcc NVCC --host-compiler G++ --key KEY --object FILE --architecture SM ... --source FILE ... -- FLAG..

nvcc writes the real path of its input (symbolic links resolved) into symbol names, and its process id into the names
of its temporary files, which end up in the object too. So copies of the sources are compiled in a folder whose name
follows from KEY alone, under a lock, and the temporary files are kept, which gives them names of their own.
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_WORK = Path("/tmp")


@contextlib.contextmanager
def work_folder(key: str) -> Iterator[Path]:
    """A folder of a fixed name, empty, for one process at a time; removed in the end.

    Raises PermissionError when it belongs to another user.
    """
    folder = _WORK / f"moet-nvcc.{key}"
    with open(f"{folder}.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def generate_code(architecture: str) -> list[str]:
    """The options for machine code of one architecture (sm_120a), without PTX.

    >>> generate_code("sm_90a")
    ['-gencode', 'arch=compute_90a,code=sm_90a']
    """
    return ["-gencode", f"arch={architecture.replace('sm_', 'compute_')},code={architecture}"]


def compile_cuda(
    nvcc: Path,
    host_compiler: Path,
    key: str,
    sources: Sequence[Path],
    architectures: Sequence[str],
    flags: Sequence[str],
    output: Path,
) -> int:
    """Compiles the first of `sources`; the rest are what it includes. Returns nvcc's exit status."""
    with work_folder(key) as work:
        for source in sources:
            copy = work / "src" / source
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        (work / "keep").mkdir()
        command = [str(nvcc), "-c", "-ccbin", str(host_compiler), "-I."]
        command += ["--keep", "--keep-dir", "../keep", f"-frandom-seed={key}"]
        for architecture in architectures:
            command += generate_code(architecture)
        command += [*flags, str(sources[0]), "-o", "../out.o"]
        done = subprocess.run(command, cwd=work / "src", check=False)
        if done.returncode == 0:
            shutil.copyfile(work / "out.o", output)
        return done.returncode


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="compile one .cu file reproducibly")
    parser.add_argument("--nvcc", type=Path, required=True, help="the compiler driver")
    parser.add_argument("--host-compiler", type=Path, required=True, help="g++")
    parser.add_argument("--key", required=True, help="names the compilation, and the folder that it runs in")
    parser.add_argument("--object", type=Path, required=True, help="where to")
    parser.add_argument("--source", type=Path, action="append", required=True, help="the .cu first, then its headers")
    parser.add_argument("--architecture", action="append", required=True, help="e.g. sm_120a; may be repeated")
    parser.add_argument("flags", nargs="*", help="passed to nvcc")
    args = parser.parse_args()
    try:
        return compile_cuda(
            Path(os.path.realpath(args.nvcc)),
            Path(os.path.realpath(args.host_compiler)),
            args.key,
            args.source,
            args.architecture,
            args.flags,
            args.object.absolute(),
        )
    except PermissionError as error:
        # Another folder is no way out: its name is in the object.
        print(f"nvcc: {error.filename} belongs to another user; expected nobody's: remove it", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
