"""Walking a tar that may be hostile: nothing is extracted, nothing large is held, and no name leaves the tar."""

import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from images.inspect import limits
from images.inspect.errors import InspectError
from images.inspect.stream import CHUNK, Reader
from images.inspect.text import brief, plain

Kind = Literal["file", "folder", "link", "hard link"]
_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
    tarfile.LNKTYPE: "hard link",
}
_UNFIT = {
    tarfile.CHRTYPE: "a device node",
    tarfile.BLKTYPE: "a device node",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Entry:
    """One entry. `path` has no leading slash or ./, `size` is of the content in bytes, `target` a link's."""

    path: str
    kind: Kind
    mode: int
    size: int
    target: str


class Content:
    """What an entry holds; to be read before the next entry, or left."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self.left = size

    def chunks(self) -> Iterator[bytes]:
        """The content in pieces. Raises InspectError where the tar ends before it does."""
        while self.left:
            data = self._reader.read(min(CHUNK, self.left))
            if not data:
                self._reader.skip(self.left)
            self.left -= len(data)
            yield data


def walk(reader: Reader, where: str) -> Iterator[tuple[Entry, Content]]:
    """The entries of a tar (ustar, GNU or pax), in its order.

    Raises InspectError, naming `where` and the entry: absolute or climbing names, devices, pipes, sparse files, hard
    links that leave the tar, more than limits allow, or no tar at all.
    """
    longer: dict[str, str] = {}
    for number in range(limits.ENTRIES):
        block = reader.read(_BLOCK)
        if len(block) < _BLOCK:
            # The end marker is missing, as some writers have it; anything else is a cut.
            if block or number == 0:
                state = "ends in the middle of an entry: it is cut off or corrupt" if number else "is no tar"
                raise InspectError(f"{where}: {state}")
            return
        if block == bytes(_BLOCK):
            return
        info = _header(block, where)
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE):
            _extend(longer, info, _text(reader, info.size, where), where)
            continue
        entry = _entry(info, longer, where)
        longer = {}
        content = Content(reader, entry.size)
        yield entry, content
        reader.skip(content.left + -entry.size % _BLOCK)
    raise InspectError(f"{where}: has more than {limits.ENTRIES:,} entries: it is not read further")


def inside(path: str, where: str) -> str:
    """`path` without ./ and doubled slashes. Raises InspectError where it is absolute or climbs out."""
    if path.startswith("/"):
        raise InspectError(f"{where}: the entry {brief(path, 80)!r} has an absolute name: it is hostile and not read")
    if ".." in path.split("/"):
        raise InspectError(f"{where}: the entry {brief(path, 80)!r} climbs out with '..': it is hostile and not read")
    return posixpath.normpath(path)


def _header(block: bytes, where: str) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise InspectError(f"{where}: is no tar, or a corrupt one ({error})") from None
    if info.size < 0:
        raise InspectError(f"{where}: the entry {brief(info.name, 80)!r} has a negative size: it is hostile")
    return info


def _text(reader: Reader, size: int, where: str) -> bytes:
    if size > limits.NAME:
        raise InspectError(f"{where}: an entry has {size:,} bytes of names: more than {limits.NAME:,} are not read")
    data = reader.read(size)
    reader.skip(size - len(data) + -size % _BLOCK)
    return data


def _extend(longer: dict[str, str], info: tarfile.TarInfo, data: bytes, where: str) -> None:
    if info.type == tarfile.XGLTYPE:
        return
    if info.type != tarfile.XHDTYPE:
        key = "path" if info.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
        longer[key] = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
        return
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) < int(length) <= len(data):
            raise InspectError(f"{where}: an entry has a pax header that is none: it is corrupt")
        record, data = data[len(length) + 1 : int(length)], data[int(length) :]
        key, _, value = record.decode("utf-8", "surrogateescape").rstrip("\n").partition("=")
        if key.startswith("GNU.sparse"):
            raise InspectError(f"{where}: has a sparse file: Moet's layers have none, and it is not read")
        longer[key] = value


def _entry(info: tarfile.TarInfo, longer: dict[str, str], where: str) -> Entry:
    path = inside(longer.get("path", info.name), where)
    if info.type not in _KINDS:
        what = _UNFIT.get(info.type, f"of type {plain(repr(info.type))}")
        raise InspectError(f"{where}: the entry {brief(path, 80)!r} is {what}: files, folders and links are expected")
    kind = _KINDS[info.type]
    size = longer.get("size", str(info.size))
    if not size.isdigit() or len(size) > 19:
        raise InspectError(f"{where}: the entry {brief(path, 80)!r} has the size {size!r}: it is corrupt")
    target = longer.get("linkpath", info.linkname)
    if kind == "hard link":
        target = inside(target.lstrip("/"), where)
    return Entry(path, kind, info.mode & 0o7777, int(size) if kind == "file" else 0, target)
