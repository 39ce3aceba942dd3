"""Wheels to one layer, installed as pip would (PyPA's installer), without a staging folder.

usage: wheel_layer.py --name NAME --mtime SECONDS --out PREFIX [--drop GLOB]... WHEEL...

Writes PREFIX.tar.gz, PREFIX.json, PREFIX.files.json and PREFIX.records.json (the text of each
distribution's RECORD by its path, for layers that replace files).
"""

import base64
import fnmatch
import hashlib
import json
import os
import posixpath
import sys
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import BinaryIO, Literal

from installer import install
from installer.destinations import WheelDestination
from installer.records import Hash, RecordEntry
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme, construct_record_file, fix_shebang

from images.oci import archive, command, layer

PYTHON = "/usr/bin/python3.11"
SITE = "usr/local/lib/python3.11/dist-packages"
_SCRIPTS = "usr/local/bin"


def scheme_paths(distribution: str) -> dict[str, str]:
    """Returns where each part of a wheel goes: Debian's layout for packages from outside Debian."""
    return {
        "purelib": SITE,
        "platlib": SITE,
        "scripts": _SCRIPTS,
        "headers": f"usr/local/include/python3.11/{distribution}",
        "data": "usr/local",
    }


class LayerDestination(WheelDestination):
    """Where installer puts one wheel's files: a LayerWriter, less the dropped ones."""

    def __init__(self, out: layer.LayerWriter, distribution: str, drop: Collection[str], dropped: set[str]) -> None:
        self._out = out
        self._paths = scheme_paths(distribution)
        self._drop = drop
        self._dropped = dropped
        self.record: tuple[str, str] = ("", "")

    def write_script(
        self, name: str, module: str, attr: str, section: Literal["console", "gui"]
    ) -> RecordEntry:
        """Writes an entry point's script (mode 0755)."""
        file_name, data = Script(name, module, attr, section).generate(PYTHON, "posix")
        return self._write(Scheme("scripts"), file_name, data, 0o755)

    def write_file(
        self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Writes one file of the wheel; scripts get the image's interpreter."""
        path = os.fspath(path)
        if scheme == "scripts":
            with fix_shebang(stream, PYTHON) as fixed:
                return self._write(scheme, path, fixed.read(), 0o755)
        return self._write(scheme, path, stream.read(), 0o755 if is_executable else 0o644)

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """Writes RECORD, with the files that were really installed."""
        kept = [(s, r) for s, r in records if f"{self._paths[s]}/{r.path}" not in self._dropped]

        def prefix(other: Scheme) -> str | None:
            if self._paths[other] == SITE:
                return None
            return posixpath.relpath(self._paths[other], SITE) + "/"

        with construct_record_file(kept, prefix) as record:
            data = record.read()
        path = f"{self._paths[scheme]}/{record_file_path}"
        self._out.file(path, data)
        self.record = (path, data.decode())

    def _write(self, scheme: Scheme, path: str, data: bytes, mode: int) -> RecordEntry:
        target = f"{self._paths[scheme]}/{path}"
        if any(fnmatch.fnmatchcase(target, glob) for glob in self._drop):
            self._dropped.add(target)
            digest = hashlib.sha256(data).digest()
        else:
            digest = bytes.fromhex(self._out.file(target, data, mode=mode))
        value = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return RecordEntry(path, Hash("sha256", value), len(data))


def write(out: layer.LayerWriter, wheels: Iterable[Path], drop: Collection[str]) -> dict[str, str]:
    """Installs `wheels` into `out`, in the order of their names; returns the text of each RECORD by path.

    `drop` are globs over paths without a leading slash; a dropped file is left out of RECORD too. A glob that
    meets no file raises LayerError: it would hide what it was for.
    """
    dropped: set[str] = set()
    records: dict[str, str] = {}
    for wheel in sorted(wheels, key=lambda w: w.name):
        # installer leaves out what pip never installs, byte code among it, and warns of each file.
        with archive.Archive(wheel) as opened, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Skip installing .*__pycache__", RuntimeWarning)
            source = WheelFile(opened)
            out.owner = f"{source.distribution}-{source.version}"
            destination = LayerDestination(out, source.distribution, drop, dropped)
            install(source, destination, {"INSTALLER": b"moet\n"})
            records.update([destination.record])
    for glob in drop:
        if not any(fnmatch.fnmatchcase(path, glob) for path in dropped):
            raise layer.LayerError(f"nothing matches the drop glob {glob}; take it out of the line's data")
    return records


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = command.parser()
    parser.add_argument("--drop", action="append", default=[])
    parser.add_argument("wheels", nargs="+", type=Path)
    args = parser.parse_args(argv)

    records: dict[str, str] = {}
    status = command.write(args, lambda out: records.update(write(out, args.wheels, args.drop)))
    if status == 0:
        Path(args.out + ".records.json").write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
