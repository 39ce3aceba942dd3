"""Unpacks the wanted members of wheels into one folder.

usage: unpack.py --wheel FILE ... --include PREFIX ... [--exclude PREFIX ...] FOLDER
"""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

_CHUNK = 1 << 20


class UnpackError(Exception):
    """Wheels that do not make one folder; the message is one line for the user."""


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(info) as source, target.open("wb") as out:
        while chunk := source.read(_CHUNK):
            out.write(chunk)
    target.chmod(0o755 if info.external_attr >> 16 & 0o100 else 0o644)


def unpack(wheels: Sequence[Path], include: Sequence[str], exclude: Sequence[str], folder: Path) -> None:
    """Unpacks the members that begin with a prefix of `include` and with none of `exclude`.

    Raises UnpackError when a prefix matches nothing, two wheels disagree on a file, or a member would leave the folder.
    """
    unused = set(include)
    owner: dict[str, tuple[Path, int]] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                name = info.filename
                wanted = [prefix for prefix in include if name.startswith(prefix)]
                if info.is_dir() or not wanted or name.startswith(tuple(exclude)):
                    continue
                unused -= set(wanted)
                if name.startswith("/") or ".." in name.split("/"):
                    raise UnpackError(f"{wheel.name}: member {name!r} would leave the folder")
                if name in owner:
                    first, crc = owner[name]
                    if crc != info.CRC:
                        raise UnpackError(f"{name}: {first.name} and {wheel.name} bring different files")
                    continue
                owner[name] = (wheel, info.CRC)
                _extract(archive, info, folder / name)
    if unused:
        raise UnpackError(f"no wheel has a member that begins with {', '.join(sorted(unused))}")


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="unpack the wanted members of wheels into one folder")
    parser.add_argument("--wheel", type=Path, action="append", required=True, help="a wheel; may be repeated")
    parser.add_argument("--include", action="append", required=True, help="prefix of wanted members; may be repeated")
    parser.add_argument("--exclude", action="append", default=[], help="prefix of unwanted members; may be repeated")
    parser.add_argument("folder", type=Path, help="where to; made if absent")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        unpack(args.wheel, args.include, args.exclude, args.folder)
    except UnpackError as error:
        print(f"wheel tree: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
