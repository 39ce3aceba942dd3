"""What all back ends have in common: records by (layer, expert), checked as the policy says."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError, from_os_error

Verify = Literal["always", "first", "never"]


class Policy:
    """Which reads are held against the checksum: all, the first of each record, or none."""

    def __init__(self, container: Container, verify: Verify) -> None:
        if verify not in ("always", "first", "never"):
            raise StorageError(f"verify: {verify!r}; expected always, first or never")
        self._container, self._verify = container, verify
        self._passed: set[Key] = set()
        self._mutex = threading.Lock()

    def due(self, key: Key) -> bool:
        """Whether a read of the record is to be checked."""
        if self._verify == "first":
            with self._mutex:
                return key not in self._passed
        return self._verify == "always"

    def check(self, key: Key, found: int) -> None:
        """Takes the checksum of what was read. Raises DamagedError."""
        if found != self._container.checksum(*key):
            raise self._container.damaged(*key, found)
        with self._mutex:
            self._passed.add(key)


class Backend(ABC):
    """A way to the records of a container. May be used from several threads; use as a context, or close.

    Attributes:
        name: "mmap", "direct", "pinned" or "arena".
        note: one line where something was not to be had here: what, and what is done instead; else empty.
        container: what is read.
    """

    name = ""

    def __init__(self, container: Container, verify: Verify) -> None:
        self.container = container
        self.policy = Policy(container, verify)
        self.note = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """Fills writable buffers with the records `keys`, one each; a buffer may be larger than a record.

        Raises StorageError, DamagedError; buffers hold anything then.
        """

    @abstractmethod
    def lease(self, key: Key) -> AbstractContextManager[memoryview]:
        """A context with a record's slot_bytes, read-only, valid inside it. Raises as `read`."""

    @abstractmethod
    def close(self) -> None:
        """Gives memory and files back; the container stays open."""

    def buffers(self, keys: Sequence[Key], into: Sequence[Any], least: int) -> list[memoryview]:
        """`into` as writable bytes. Raises StorageError on another number of them, or one that is too small."""
        if len(keys) != len(into):
            raise StorageError(f"{len(into)} buffers for {len(keys)} records; expected one each")
        views = [memoryview(one).cast("B") for one in into]
        for view in views:
            if view.readonly or view.nbytes < least:
                raise StorageError(f"buffer of {view.nbytes:,} bytes; expected a writable one of at least {least:,}")
        return views

    def settle(self, keys: Sequence[Key], due: Sequence[bool], came: Sequence[tuple[int, int, int]]) -> None:
        """Judges reads: (errno or 0, bytes that came, checksum) of each record. Raises StorageError, DamagedError."""
        for key, one, (status, got, found) in zip(keys, due, came, strict=True):
            if status:
                raise from_os_error(
                    OSError(status, os.strerror(status)),
                    self.container.records,
                    what="layer {}, expert {}".format(*key),
                )
            if got < self.container.header.slot_bytes:
                raise self.container.short(*key, got)
            if one:
                self.policy.check(key, found)

    def require_open(self, is_open: bool) -> None:
        """Raises StorageError where the back end was closed."""
        if not is_open:
            raise StorageError(f"{self.container.path}: this back end was closed; make another")
