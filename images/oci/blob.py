"""Content-addressed files: hashing while writing, and the digest kept beside the bytes."""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Protocol

XATTR = "user.moet.sha256"


class Sink(Protocol):
    """What bytes can be written to."""

    def write(self, data: bytes, /) -> int:
        """Takes `data` and returns its length."""
        ...

    def flush(self) -> None:
        """Passes on what was kept back."""
        ...


class HashingSink:
    """A binary sink that passes bytes on and keeps their SHA-256 and count."""

    def __init__(self, out: Sink) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Writes `data` and returns its length in bytes."""
        self._hash.update(data)
        self.size += len(data)
        self._out.write(data)
        return len(data)

    def flush(self) -> None:
        """Flushes what lies below."""
        self._out.flush()

    @property
    def digest(self) -> str:
        """The OCI digest (`sha256:<hex>`) of all bytes so far."""
        return "sha256:" + self._hash.hexdigest()


def label(path: Path, digest: str) -> None:
    """Stores a file's digest as the extended attribute that .bazelrc tells Bazel to trust.

    A file system without extended attributes costs Bazel a second hashing, nothing else.
    """
    with contextlib.suppress(OSError):
        os.setxattr(path, XATTR, bytes.fromhex(digest.removeprefix("sha256:")))


def write(folder: Path, data: bytes) -> tuple[str, int]:
    """Writes `data` into an OCI layout's blob folder; returns its digest and size in bytes."""
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    path = folder / digest.removeprefix("sha256:")
    path.write_bytes(data)
    label(path, digest)
    return digest, len(data)
