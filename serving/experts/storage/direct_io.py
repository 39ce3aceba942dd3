"""Back end "direct": past the page cache, many reads in flight, by io_uring or by threads with preadv."""

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from serving.experts.storage import buffers, native
from serving.experts.storage.backend import Backend, Verify
from serving.experts.storage.checksum import crc64
from serving.experts.storage.header import ALIGNMENT, TRAILER_BYTES, Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError

Engine = Literal["auto", "io_uring", "preadv"]


class Direct(Backend):
    """Reads with O_DIRECT where the file system has it.

    Attributes:
        engine: "io_uring", "preadv", or "python" where the machine-code part was not built.
        direct: whether the page cache is passed by.
    """

    name = "direct"

    def __init__(
        self,
        container: Container,
        verify: Verify = "always",
        depth: int = 16,
        chunk: int = 4 << 20,
        engine: Engine = "auto",
    ) -> None:
        super().__init__(container, verify)
        if engine == "io_uring" and native.MODULE is None:
            raise StorageError(f"engine {engine}: {native.WHY}")
        self._fd, why = _open(container)
        self.direct = not why
        notes = [f"through the page cache: {why}"] if why else []
        self._reader: Any = None
        self.engine = "python"
        if native.MODULE is not None:
            try:
                self._reader = native.MODULE.Reader(self._fd, depth, chunk, ALIGNMENT if self.direct else 1, engine)
            except (RuntimeError, ValueError, OSError) as error:
                os.close(self._fd)
                raise StorageError(f"engine {engine}, depth {depth}, chunk {chunk}: {error}") from None
            self.engine = self._reader.engine
            if self._reader.why:
                notes.append(f"threads with preadv: {self._reader.why}")
        else:
            notes.append(f"one read at a time: {native.WHY}")
        self.note = "; ".join(notes)
        self._spare: list[memoryview] = []
        self._mutex = threading.Lock()

    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """See Backend. With O_DIRECT buffers hold header.read_bytes and begin at a multiple of 4096: `aligned`."""
        header = self.container.header
        least = header.read_bytes if self.direct else header.slot_bytes
        views = self.buffers(keys, into, least)
        for key, view in zip(keys, views, strict=True):
            self.container.checksum(*key)
            if self.direct and buffers.address(view) % ALIGNMENT:
                raise StorageError(
                    f"buffer at {buffers.address(view):#x}; O_DIRECT needs a multiple of {ALIGNMENT}: take it from "
                    "serving.experts.storage.buffers.aligned"
                )
        self.require_open(self._fd >= 0)
        due = [self.policy.due(key) for key in keys]
        if self._reader is None:
            came = [self._one(header.offset(*key), view[:least]) for key, view in zip(keys, views, strict=True)]
        else:
            wanted = [
                (header.offset(*key), least, header.slot_bytes, view) for key, view in zip(keys, views, strict=True)
            ]
            try:
                came = self._reader.read(wanted, any(due))
            except (OSError, RuntimeError) as error:
                raise StorageError(f"{self.container.records}: {error}") from None
        self.settle(keys, due, came)

    @contextmanager
    def lease(self, key: Key) -> Iterator[memoryview]:
        """See Backend. The record is read for this lease."""
        with self._mutex:
            buffer = self._spare.pop() if self._spare else None
        if buffer is None:
            buffer = buffers.aligned(self.container.header.read_bytes)
        try:
            self.read([key], [buffer])
            yield buffer[: self.container.header.slot_bytes].toreadonly()
        finally:
            with self._mutex:
                self._spare.append(buffer)

    def close(self) -> None:
        """See Backend."""
        self._reader = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._spare.clear()

    def _one(self, offset: int, view: memoryview) -> tuple[int, int, int]:
        done = 0
        while done < len(view):
            try:
                got = os.preadv(self._fd, [view[done:]], offset + done)
            except OSError as error:
                return error.errno or errno.EIO, done, 0
            if got == 0:
                break
            done += got
        size = self.container.header.slot_bytes
        return 0, done, crc64(view[:size]) if done >= size else 0


def _open(container: Container) -> tuple[int, str]:
    """The file again, for O_DIRECT; where that cannot be, as it is, and why."""
    # By the open descriptor: the name may be another file's by now.
    path = f"/proc/self/fd/{container.fileno()}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        return os.dup(container.fileno()), f"O_DIRECT: {error.strerror}"
    try:
        probe = buffers.aligned(TRAILER_BYTES)
        os.preadv(fd, [probe], container.apparent - TRAILER_BYTES)
    except OSError as error:
        os.close(fd)
        return os.dup(container.fileno()), f"O_DIRECT: a read of {TRAILER_BYTES} bytes: {error.strerror}"
    return fd, ""
