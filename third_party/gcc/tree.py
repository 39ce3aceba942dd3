"""Makes one folder of what is wanted of Debian packages; with --driver, launch/g++ in it is the compiler.

usage: tree.py --deb FILE ... --include PREFIX ... [--exclude PREFIX ...] [--driver PATH --program NAME=PATH ...] FOLDER
"""

import argparse
import sys
from pathlib import Path

from images.oci import rootfs_deb
from images.oci.layer import LayerError
from third_party.gcc import launcher, unpack


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="make one folder of Debian packages")
    parser.add_argument("--deb", type=Path, action="append", required=True, help="a package; may be repeated")
    parser.add_argument("--include", action="append", required=True, help="prefix of wanted paths; may be repeated")
    parser.add_argument("--exclude", action="append", default=[], help="prefix of unwanted paths; may be repeated")
    parser.add_argument("--driver", help="path of g++ in the packages")
    parser.add_argument("--program", action="append", default=[], help="NAME=PATH of what g++ runs; may be repeated")
    parser.add_argument("folder", type=Path, help="where to; made if absent")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        unpack.unpack(map(rootfs_deb.read, args.deb), args.include, args.exclude, args.folder)
        if args.driver:
            launcher.write(args.folder, args.driver, dict(program.split("=", 1) for program in args.program))
    except (LayerError, launcher.LauncherError, unpack.UnpackError) as error:
        print(f"{args.folder.name}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
