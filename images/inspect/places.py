"""Where named files are: a folder, or a tar that is read in place."""

import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from images.inspect import tar
from images.inspect.errors import InspectError
from images.inspect.stream import CHUNK, compression
from images.inspect.text import brief

# Links to links to links.
_HOPS = 8
_ENTRIES = 50_000


class Place(Protocol):
    """Files by name; `where` names the place in messages."""

    where: str

    def size(self, name: str) -> int | None:
        """A file's size in bytes, None where there is none."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """A file's bytes. Raises InspectError where there is none."""


def small(place: Place, name: str, limit: int) -> bytes:
    """The bytes of a file of at most `limit`. Raises InspectError."""
    size = place.size(name)
    if size is None:
        raise InspectError(f"{place.where}: {name} is missing: it is incomplete: fetch or build it again")
    if size > limit:
        raise InspectError(f"{place.where}: {name} has {size:,} bytes; at most {limit:,} are read of a document")
    return b"".join(place.chunks(name))


class Folder:
    """A folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)

    def size(self, name: str) -> int | None:
        """A regular file's size in bytes, None where there is none."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def chunks(self, name: str) -> Iterator[bytes]:
        """A regular file's bytes."""
        if self.size(name) is None:
            raise InspectError(f"{self.where}: {name} is missing: it is incomplete: fetch or build it again")
        with (self.path / name).open("rb") as stream:
            while data := stream.read(CHUNK):
                yield data


class TarFile:
    """A tar on disk. Its headers are read once; links are followed within it alone.

    Raises InspectError from the constructor: no tar, a packed one, or a hostile one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self._files: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        with path.open("rb") as stream:
            kind = compression(stream.read(8))
            if kind:
                raise InspectError(f"{path}: is packed with {kind}; unpack it first, then name the plain tar")
            stream.seek(0)
            self._read(_Seeking(stream, path.stat().st_size, self.where))

    def size(self, name: str) -> int | None:
        """A file's size in bytes, None where there is none."""
        found = self._find(name)
        return found[1] if found else None

    def chunks(self, name: str) -> Iterator[bytes]:
        """A file's bytes."""
        found = self._find(name)
        if found is None:
            raise InspectError(f"{self.where}: {name} is missing: it is incomplete: save it again")
        at, left = found
        with self.path.open("rb") as stream:
            stream.seek(at)
            while left and (data := stream.read(min(CHUNK, left))):
                left -= len(data)
                yield data

    def _read(self, reader: "_Seeking") -> None:
        for number, (entry, _) in enumerate(tar.walk(reader, self.where)):
            if number >= _ENTRIES:
                raise InspectError(f"{self.where}: has more than {_ENTRIES:,} entries: it is no saved image")
            if entry.kind == "file":
                self._files[entry.path] = (reader.at, entry.size)
                self._links.pop(entry.path, None)
            elif entry.kind != "folder":
                self._links[entry.path] = self._inside(entry)
                self._files.pop(entry.path, None)

    def _inside(self, entry: tar.Entry) -> str:
        if entry.kind == "hard link":
            return entry.target
        target = posixpath.normpath(posixpath.join(posixpath.dirname(entry.path), entry.target))
        if target.startswith(("/", "../")) or target == "..":
            raise InspectError(
                f"{self.where}: the entry {brief(entry.path, 80)!r} links out of the tar, to"
                f" {brief(entry.target, 80)!r}: it is hostile and not read"
            )
        return target

    def _find(self, name: str) -> tuple[int, int] | None:
        for _ in range(_HOPS):
            if name in self._files:
                return self._files[name]
            if name not in self._links:
                return None
            name = self._links[name]
        raise InspectError(f"{self.where}: {name!r} is a chain of links without an end: it is hostile and not read")


class _Seeking:
    """A Reader of a file."""

    def __init__(self, stream: BinaryIO, size: int, where: str) -> None:
        self._stream = stream
        self._size = size
        self._where = where

    @property
    def at(self) -> int:
        return self._stream.tell()

    def read(self, size: int) -> bytes:
        return self._stream.read(size)

    def skip(self, size: int) -> None:
        # The padding of the very last entry is left out by some writers.
        if self.at + size > self._size + 511:
            raise InspectError(f"{self._where}: ends in the middle of an entry: it is cut off or corrupt")
        self._stream.seek(size, 1)
