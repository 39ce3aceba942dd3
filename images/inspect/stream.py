"""Bytes read once, forward only, counted, unpacked and hashed on their way."""

import hashlib
import zlib
from collections.abc import Iterator
from typing import Protocol

from images.inspect import limits
from images.inspect.errors import InspectError

CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


class Reader(Protocol):
    """What a tar is read from."""

    @property
    def at(self) -> int:
        """Bytes read or skipped so far."""

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""

    def skip(self, size: int) -> None:
        """Passes over `size` bytes. Raises InspectError where there are fewer."""


class Chunks:
    """A Reader of chunks that come once."""

    def __init__(self, chunks: Iterator[bytes], where: str) -> None:
        self._chunks = chunks
        self._where = where
        self._rest = memoryview(b"")
        self.at = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""
        return b"".join(self._pieces(size))

    def skip(self, size: int) -> None:
        """Passes over `size` bytes."""
        passed = sum(len(piece) for piece in self._pieces(size))
        if passed != size:
            raise InspectError(f"{self._where}: ends in the middle of an entry: it is cut off or corrupt")

    def drain(self) -> None:
        """Reads to the end, so that every byte has been hashed."""
        while self.read(CHUNK):
            pass

    def _pieces(self, size: int) -> Iterator[memoryview]:
        while size > 0:
            if not self._rest:
                data = next(self._chunks, None)
                if data is None:
                    return
                self._rest = memoryview(data)
                continue
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            self.at += len(piece)
            yield piece


def compression(start: bytes) -> str | None:
    """The compression that these first bytes are of, None for none known."""
    if start.startswith(_GZIP):
        return "gzip"
    return next((name for magic, name in _OTHERS.items() if start.startswith(magic)), None)


class Layer:
    """A layer's tar out of its blob; `check` says afterwards whether both are the expected ones.

    Args:
        chunks: the blob as it is stored.
        where: named in messages.
        limit: of unpacked bytes.
    """

    def __init__(self, chunks: Iterator[bytes], where: str, limit: int) -> None:
        self._where = where
        self._limit = limit
        self._packed = hashlib.sha256()
        self._bare = hashlib.sha256()
        self.packed_size = 0
        self.bare_size = 0
        self.reader = Chunks(self._unpacked(self._stored(chunks)), where)

    def check(self, digest: str | None, size: int | None, diff_id: str) -> None:
        """Reads the rest; raises InspectError unless blob and tar have these hashes (the blob's where it is known)."""
        self.reader.drain()
        found = f"sha256:{self._packed.hexdigest()}"
        if digest is not None and (found, self.packed_size) != (digest, self.packed_size if size is None else size):
            raise InspectError(
                f"{self._where}: has {found} ({self.packed_size} bytes), {digest} ({size} bytes) was expected:"
                " it is corrupt: fetch or build it again"
            )
        bare = f"sha256:{self._bare.hexdigest()}"
        if bare != diff_id:
            raise InspectError(f"{self._where}: unpacks to {bare}, the configuration states {diff_id}: it is corrupt")

    def _stored(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in chunks:
            self._packed.update(data)
            self.packed_size += len(data)
            yield data

    def _unpacked(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(chunks, b"")
        while len(first) < 8 and (more := next(chunks, b"")):
            first += more
        kind = compression(first)
        if kind not in (None, "gzip"):
            raise InspectError(f"{self._where}: is packed with {kind}; Moet's layers are gzip or plain tar")
        whole = _chain(first, chunks)
        for data in _gunzip(whole, self._where) if kind else whole:
            self._bare.update(data)
            self.bare_size += len(data)
            self._bound(kind is not None)
            if data:
                yield data

    def _bound(self, packed: bool) -> None:
        if self.bare_size > self._limit:
            raise InspectError(f"{self._where}: unpacks to more than {self._limit >> 20} MiB: it is not read further")
        if packed and self.bare_size > max(limits.RATIO_FROM, limits.RATIO * self.packed_size):
            raise InspectError(
                f"{self._where}: {self.packed_size} bytes unpack to more than {self.bare_size >> 20} MiB:"
                " a compression bomb, or no layer of Moet's; it is not read further"
            )


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _gunzip(chunks: Iterator[bytes], where: str) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        for data in chunks:
            while data:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(wbits=31)
                yield unpacker.decompress(data, CHUNK)
                data = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        while not unpacker.eof and (out := unpacker.decompress(b"", CHUNK)):
            yield out
    except zlib.error as error:
        raise InspectError(f"{where}: is no gzip stream ({error}): it is corrupt") from None
    if not unpacker.eof:
        raise InspectError(f"{where}: its gzip stream ends too early: it is cut off or corrupt")
