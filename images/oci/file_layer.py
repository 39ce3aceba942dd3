"""Single files and links to one layer.

usage: file_layer.py --name NAME --mtime SECONDS --out PREFIX
           [--file DEST=SOURCE]... [--executable DEST=SOURCE]... [--link DEST=TARGET]...
"""

import sys
from pathlib import Path

from images.oci import command, layer


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = command.parser()
    for kind in ("file", "executable", "link"):
        parser.add_argument(f"--{kind}", action="append", default=[])
    args = parser.parse_args(argv)

    def fill(out: layer.LayerWriter) -> None:
        out.owner = "moet"
        for kind, mode in ("file", 0o644), ("executable", 0o755):
            for dest, source in sorted(pair.split("=", 1) for pair in getattr(args, kind)):
                out.file(dest, Path(source).read_bytes(), mode=mode)
        for dest, target in sorted(pair.split("=", 1) for pair in args.link):
            out.symlink(dest, target)

    return command.write(args, fill)


if __name__ == "__main__":
    sys.exit(main())
