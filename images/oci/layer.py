"""One image layer, written in a single pass: tar, compression, both digests and a listing.

The bytes depend on the calls alone: no clock, no user, no order of a file system. The compressor is
ISA-L at level 1, whose output was compared across instruction sets (docs/reproducibility.md).
"""

import contextlib
import hashlib
import io
import json
import posixpath
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from isal import igzip

from images.oci import blob

MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_CHUNK = 1 << 20


class LayerError(Exception):
    """Content that cannot become a layer; the message is one line for the user."""


@dataclass(frozen=True)
class Layer:
    """A layer's descriptor: `size` in bytes as compressed, `diff_id` of the bare tar."""

    name: str
    comment: str
    mediaType: str  # noqa: N815 - the specification's spelling
    digest: str
    size: int
    diff_id: str


@dataclass(frozen=True)
class Entry:
    """One path of a layer: type "f" file, "d" directory or "l" symbolic link.

    `content` is a file's SHA-256 in hex or a link's target; `owner` the package it came from.
    """

    path: str
    type: str
    mode: int
    size: int
    content: str
    owner: str


class LayerWriter:
    """Writes `path` (a .tar.gz) in the order of the calls; parents are made as they are needed.

    `mtime` (seconds since the epoch) is given to every entry. Set `owner` before the calls that
    belong to one package. Installing a path twice with the same bytes keeps the first; with other
    bytes it raises LayerError naming both packages.
    """

    def __init__(self, path: Path, mtime: int) -> None:
        self.owner = ""
        self.entries: dict[str, Entry] = {}
        self._path = path
        self._mtime = mtime
        self._raw = path.open("wb")
        self._packed = blob.HashingSink(self._raw)
        self._gzip = igzip.IGzipFile(  # type: ignore[no-untyped-call]
            filename="", mode="wb", compresslevel=1, fileobj=self._packed, mtime=0
        )
        self._bare = blob.HashingSink(self._gzip)
        self._tar = tarfile.open(  # noqa: SIM115 - closed in close()
            fileobj=self._bare,  # type: ignore[call-overload]
            mode="w|",
            format=tarfile.GNU_FORMAT,
            bufsize=_CHUNK,
        )

    def __enter__(self) -> "LayerWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for part in (self._tar, self._gzip, self._raw):
                with contextlib.suppress(OSError):
                    part.close()
            self._path.unlink(missing_ok=True)

    def directory(self, path: str, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        """Adds a directory; a no-op where one was made already, be it as a parent."""
        path = self._clean(path)
        known = self.entries.get(path)
        if known is not None:
            if known.type != "d":
                raise LayerError(f"/{path}: {self.owner or 'this layer'} has a directory, {known.owner} has a file")
            return
        self._parents(path)
        self._add(Entry(path, "d", mode, 0, "", self.owner), tarfile.DIRTYPE, uid, gid)

    def file(
        self,
        path: str,
        data: bytes | BinaryIO,
        size: int | None = None,
        mode: int = 0o644,
        uid: int = 0,
        gid: int = 0,
    ) -> str:
        """Adds a regular file and returns its SHA-256 in hex.

        A stream needs `size` in bytes and is read once, in chunks.
        """
        path = self._clean(path)
        if isinstance(data, bytes):
            size, digest = len(data), hashlib.sha256(data).hexdigest()
            if self._known(Entry(path, "f", mode, size, digest, self.owner)):
                return digest
            data = io.BytesIO(data)
        elif size is None:
            raise LayerError(f"/{path}: a stream needs its size")
        elif path in self.entries:
            return self.file(path, data.read(size), None, mode, uid, gid)
        self._parents(path)
        reader = _HashingReader(data)
        self._tar.addfile(self._info(path, tarfile.REGTYPE, mode, uid, gid, size), reader)
        digest = reader.hash.hexdigest()
        self.entries[path] = Entry(path, "f", mode, size, digest, self.owner)
        return digest

    def symlink(self, path: str, target: str) -> None:
        """Adds a symbolic link that holds `target` as it is."""
        entry = Entry(self._clean(path), "l", 0o777, 0, target, self.owner)
        if not self._known(entry):
            self._parents(entry.path)
            self._add(entry, tarfile.SYMTYPE, 0, 0)

    def close(self, name: str, comment: str = "") -> Layer:
        """Ends the layer and returns its descriptor."""
        self._tar.close()
        self._gzip.close()
        self._raw.close()
        blob.label(self._path, self._packed.digest)
        return Layer(name, comment, MEDIA_TYPE, self._packed.digest, self._packed.size, self._bare.digest)

    @staticmethod
    def _clean(path: str) -> str:
        clean = posixpath.normpath(path).lstrip("/")
        if clean in ("", ".") or clean.startswith("../") or clean == "..":
            raise LayerError(f"{path!r}: not a path below the root")
        return clean

    def _known(self, entry: Entry) -> bool:
        known = self.entries.get(entry.path)
        if known is None:
            return False
        if (known.type, known.content) != (entry.type, entry.content):
            raise LayerError(
                f"/{entry.path}: installed by {known.owner or 'this layer'} and by {entry.owner or 'this layer'}"
                " with different bytes; drop one of them in the line's data"
            )
        return True

    def _parents(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if parent and parent not in self.entries:
            self.directory(parent)

    def _add(self, entry: Entry, kind: bytes, uid: int, gid: int) -> None:
        info = self._info(entry.path, kind, entry.mode, uid, gid, 0)
        info.linkname = entry.content
        self._tar.addfile(info)
        self.entries[entry.path] = entry

    def _info(self, path: str, kind: bytes, mode: int, uid: int, gid: int, size: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size, info.mtime = kind, mode, size, self._mtime
        info.uid, info.gid = uid, gid
        return info


class _HashingReader:
    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.hash.update(data)
        return data


def write_descriptor(layer: Layer, path: Path) -> None:
    """Writes the descriptor as JSON."""
    path.write_text(json.dumps(asdict(layer), indent=1) + "\n")


def write_listing(entries: dict[str, Entry], path: Path) -> None:
    """Writes the layer's entries as JSON rows [path, type, mode, size, content, owner], by path."""
    rows = [json.dumps([e.path, e.type, e.mode, e.size, e.content, e.owner]) for _, e in sorted(entries.items())]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def read_descriptor(path: Path) -> Layer:
    """Reads what write_descriptor wrote."""
    return Layer(**json.loads(path.read_text()))


def read_listing(path: Path) -> list[Entry]:
    """Reads what write_listing wrote."""
    return [Entry(*row) for row in json.loads(path.read_text())]
