"""Copies what a machine with a GPU takes from the build into one folder.

usage: bazel run //kernels:bundle -- FOLDER

FOLDER gets <family>.so of every family, and narrow/<family>.so of those that are also built with the shared memory of
sm_120. With the tree, it is all that `python3 -m kernels.receipt --libraries FOLDER` needs.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path


def bundle(libraries: list[Path], folder: Path) -> list[str]:
    """Copies libraries, those from a folder called narrow to one of that name; returns what is there now."""
    result = []
    for library in libraries:
        target = folder / ("narrow" if library.parent.name == "narrow" else "") / library.name
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.new")
        shutil.copyfile(library, beside)
        beside.replace(target)
        result.append(str(target.relative_to(folder)))
    return result


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="copy the libraries of all kernels into one folder")
    parser.add_argument("--library", type=Path, action="append", required=True, help=argparse.SUPPRESS)
    parser.add_argument("folder", type=Path, help="where to; made if absent")
    args = parser.parse_args()
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), args.folder)
    print("\n".join(bundle(args.library, folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
