"""Reads Debian binary packages: an ar archive with control.tar and data.tar, as deb(5) describes it."""

import io
import lzma
import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from images.oci.layer import LayerError

_MAGIC = b"!<arch>\n"
_HEADER = 60
_COMPRESSION = {"": "r:", ".gz": "r:gz", ".xz": "r:xz", ".bz2": "r:bz2"}
_KINDS = {
    tarfile.REGTYPE: "f",
    tarfile.AREGTYPE: "f",
    tarfile.DIRTYPE: "d",
    tarfile.SYMTYPE: "l",
    tarfile.LNKTYPE: "h",
}


class DebError(LayerError):
    """A file that is not a usable package; the message is one line for the user."""


@dataclass(frozen=True)
class Member:
    """One path of a package: kind "f" file, "d" directory, "l" symbolic link or "h" hard link.

    `path` is relative to the root. `target` is a link's, verbatim for a symbolic one and relative
    to the root for a hard one. `data` is a file's content.
    """

    path: str
    kind: str
    mode: int
    uid: int
    gid: int
    target: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Deb:
    """One package: `control` is its control file, `fields` the same as a dict, `md5sums` by path."""

    path: Path
    name: str
    version: str
    control: str
    fields: dict[str, str]
    md5sums: dict[str, str]
    _data: tuple[str, bytes]

    def members(self) -> Iterator[Member]:
        """Yields the package's content in its own order.

        Raises DebError on a damaged archive, a path outside the root or a special file.
        """
        name, packed = self._data
        try:
            with _open(name, packed) as tar:
                for info in tar:
                    path = _clean(info.name, self.path)
                    if path:
                        yield self._member(tar, info, path)
        except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
            raise DebError(f"{self.path.name}: {name} is damaged ({error}); fetch the package again") from None

    def _member(self, tar: tarfile.TarFile, info: tarfile.TarInfo, path: str) -> Member:
        kind = _KINDS.get(info.type)
        if kind is None:
            raise DebError(f"{self.path.name}: /{path} is a special file; expected files, directories and links")
        data, target = b"", ""
        if kind == "f":
            source = tar.extractfile(info)
            data = source.read() if source else b""
            if len(data) != info.size:
                raise EOFError(f"/{path} ends early")
        elif kind == "l":
            target = info.linkname
        elif kind == "h":
            target = _clean(info.linkname, self.path)
        return Member(path, kind, info.mode & 0o7777, info.uid, info.gid, target, data)


def read(path: Path) -> Deb:
    """Reads a package's control data; its content is unpacked only by members().

    Raises DebError when `path` is not a package of format 2.0 or lacks Package and Version.
    """
    parts = dict(_ar(path))
    if parts.get("debian-binary", b"").split(b"\n")[0].split(b".")[0] != b"2":
        raise DebError(f"{path.name}: not a Debian package (no debian-binary 2.x member); fetch it again")
    control, sums = "", ""
    name, packed = _part(parts, "control.tar", path)
    try:
        with _open(name, packed) as tar:
            for info in tar:
                source = tar.extractfile(info)
                text = source.read().decode() if source else ""
                if _clean(info.name, path) == "control":
                    control = text
                elif _clean(info.name, path) == "md5sums":
                    sums = text
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise DebError(f"{path.name}: {name} is damaged ({error}); fetch the package again") from None
    fields = parse_control(control)
    if "Package" not in fields or "Version" not in fields:
        raise DebError(f"{path.name}: its control file names no Package and Version")
    md5sums = {row[34:]: row[:32] for row in sums.splitlines()}
    return Deb(path, fields["Package"], fields["Version"], control, fields, md5sums, _part(parts, "data.tar", path))


def parse_control(text: str) -> dict[str, str]:
    """Returns the fields of one control stanza; continuation lines are kept, joined by newlines."""
    return {key: value.strip() for key, value in re.findall(r"^([^\s:]+):(.*(?:\n[ \t].*)*)", text, re.MULTILINE)}


def _ar(path: Path) -> Iterator[tuple[str, bytes]]:
    data = memoryview(path.read_bytes())
    if data[: len(_MAGIC)] != _MAGIC:
        raise DebError(f"{path.name}: not an ar archive, so not a Debian package; fetch it again")
    position = len(_MAGIC)
    while position < len(data):
        header = bytes(data[position : position + _HEADER])
        size_field = header[48:58].strip()
        if len(header) < _HEADER or header[58:] != b"`\n" or not size_field.isdigit():
            raise DebError(f"{path.name}: damaged ar archive at byte {position}; fetch the package again")
        start, size = position + _HEADER, int(size_field)
        if start + size > len(data):
            raise DebError(f"{path.name}: cut short ({len(data)} bytes, {start + size} expected); fetch it again")
        yield header[:16].decode("ascii", "replace").rstrip(" /"), bytes(data[start : start + size])
        position = start + size + size % 2


def _part(parts: dict[str, bytes], stem: str, path: Path) -> tuple[str, bytes]:
    for name, data in parts.items():
        if name.startswith(stem):
            if name[len(stem) :] not in _COMPRESSION:
                known = ", ".join(ending or "none" for ending in _COMPRESSION)
                raise DebError(f"{path.name}: {name} has an unknown compression; expected one of {known}")
            return name, data
    raise DebError(f"{path.name}: no {stem} in it, so not a Debian package; fetch it again")


def _open(name: str, packed: bytes) -> tarfile.TarFile:
    stem = "control.tar" if name.startswith("control") else "data.tar"
    mode = _COMPRESSION[name[len(stem) :]]
    return tarfile.open(fileobj=io.BytesIO(packed), mode=mode)  # type: ignore[call-overload, no-any-return]


def _clean(name: str, path: Path) -> str:
    clean = posixpath.normpath("/" + name).lstrip("/")
    if ".." in name.split("/"):
        raise DebError(f"{path.name}: path {name!r} leaves the root; do not use this package")
    return clean
