"""Writes the file that python_archive (archive.bzl) declares.

usage: archive_writer.py --out FILE --main MAIN.py --entry MODULE:FUNCTION --name NAME [--left-out PACKAGE]...
           [--pure PACKAGE]... [--wheel WHEEL]... --file PATH=SOURCE...
"""

import argparse
import base64
import csv
import hashlib
import stat
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

_SHEBANG = b"#!/usr/bin/env python3\n"
# The earliest time that a zip file can state.
_TIME = (1980, 1, 1, 0, 0, 0)
_COMPILED = (".so", ".pyd", ".dylib", ".a", ".o")


class ArchiveError(Exception):
    """What does not fit into an archive: one line a problem."""


def collect(files: Iterable[tuple[str, Path]], left_out: Iterable[str], pure: Iterable[str]) -> dict[str, Path]:
    """Returns the archive's files by path, without compiled parts and the packages in `left_out`.

    Raises ArchiveError on two different files for one path, on a path that leads out of the archive, and on a
    package with compiled parts that neither `left_out` nor `pure` names.
    """
    unwanted, allowed = set(left_out), set(pure)
    found: dict[str, Path] = {}
    problems = []
    for place, source in files:
        path = PurePosixPath(place)
        if path.is_absolute() or ".." in path.parts:
            problems.append(f"{place}: leads out of the archive")
            continue
        package = _package(path)
        # What the interpreter left beside a source is no part of it.
        if package in unwanted or "__pycache__" in path.parts:
            continue
        if path.suffix in _COMPILED:
            if package not in allowed:
                advice = f"name {package} in `left_out`, or in `pure` where it works without"
                problems.append(f"{place}: is compiled: {advice}")
            continue
        other = found.setdefault(str(path), source)
        if other != source and other.read_bytes() != source.read_bytes():
            problems.append(f"{place}: {other} and {source} differ")
    if problems:
        raise ArchiveError("\n".join(sorted(problems)))
    return found


def from_wheels(files: Mapping[str, bytes], wheels: Iterable[Path]) -> dict[str, bytes]:
    """Returns `files` with those that are in one of `wheels` as they are there."""
    whole = dict(files)
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            whole.update({name: wheel.read(name) for name in wheel.namelist() if name in files})
    return whole


def altered(files: Mapping[str, bytes]) -> list[str]:
    """Returns the paths of files that are not what the RECORD (PEP 376) of their distribution says."""
    wrong = []
    for record in (path for path in files if path.endswith(".dist-info/RECORD")):
        for path, stated, _ in csv.reader(files[record].decode().splitlines()):
            algorithm, _, value = stated.partition("=")
            if path in files and algorithm == "sha256":
                found = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).decode().rstrip("=")
                wrong += [path] if found != value else []
    return sorted(wrong)


def with_packages(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns `files` with an empty __init__.py in each folder of modules without one, and in all folders above it.

    Namespace packages do not offer their data when they come from a zip file.
    """
    whole = dict(files)
    for path in files:
        if path.endswith(".py"):
            for folder in PurePosixPath(path).parents:
                if folder.name:
                    whole.setdefault(f"{folder}/__init__.py", b"")
    return whole


def write(out: Path, files: Mapping[str, bytes]) -> None:
    """Writes the archive: `#!` line, then a zip file of `files`, in the order of their paths, uncompressed.

    Compressed bytes would be those of one zlib; modules of an uncompressed one also load faster.
    """
    folders = {f"{folder}/" for path in files for folder in PurePosixPath(path).parents if folder.name}
    with out.open("wb") as stream:
        stream.write(_SHEBANG)
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted([*files, *folders]):
                info = zipfile.ZipInfo(path, _TIME)
                info.create_system = 3
                mode = stat.S_IFDIR | 0o755 if path in folders else stat.S_IFREG | 0o644
                info.external_attr = mode << 16
                archive.writestr(info, b"" if path in folders else files[path])
    out.chmod(0o755)


def _package(path: PurePosixPath) -> str:
    """The top-level package that a path belongs to; one for a distribution's metadata and data folders too."""
    top = path.parts[0]
    for suffix in (".dist-info", ".data"):
        if top.endswith(suffix):
            return top.removesuffix(suffix).rpartition("-")[0]
    return top.split(".")[0].removesuffix(".libs")


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(fromfile_prefix_chars="@")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--main", type=Path, required=True)
    parser.add_argument("--entry", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--left-out", action="append", default=[])
    parser.add_argument("--pure", action="append", default=[])
    parser.add_argument("--wheel", type=Path, action="append", default=[])
    parser.add_argument("--file", action="append", default=[])
    args = parser.parse_args(argv)
    pairs = [(place, Path(source)) for place, _, source in (entry.partition("=") for entry in args.file)]
    try:
        files = {place: source.read_bytes() for place, source in collect(pairs, args.left_out, args.pure).items()}
        files = from_wheels(files, args.wheel)
        if wrong := altered(files):
            found = f"{wrong[0]}: is not what its wheel's RECORD says"
            raise ArchiveError(f"{found}: the host altered it after it was unpacked; bazel clean --expunge, then again")
    except ArchiveError as error:
        print(f"{args.name}: {error}", file=sys.stderr)
        return 1
    start = args.main.read_text(encoding="utf-8")
    for word, value in (("ENTRY", args.entry), ("NAME", args.name), ("LEFT_OUT", " ".join(sorted(args.left_out)))):
        start = start.replace(f"@{word}@", value)
    write(args.out, {**with_packages(files), "__main__.py": start.encode()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
