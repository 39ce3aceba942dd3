"""Back end "mmap": records where the page cache has them; the kernel keeps and forgets them."""

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from serving.experts.storage import native
from serving.experts.storage.backend import Backend, Verify
from serving.experts.storage.checksum import crc64
from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError, from_os_error

_PIECE = 128 << 10


class Mapped(Backend):
    """The file of records mapped into memory; `depth` threads, 64 at most, bring records in."""

    name = "mmap"

    def __init__(self, container: Container, verify: Verify = "always", depth: int = 16) -> None:
        super().__init__(container, verify)
        self._cached: Any = None
        if native.MODULE is None:
            self.note = f"brought in by one thread: {native.WHY}"
        else:
            try:
                self._cached = native.MODULE.Cached(container.fileno(), depth)
            except (ValueError, RuntimeError) as error:
                raise StorageError(f"depth {depth}: {error}") from None
        try:
            mapping = mmap.mmap(container.fileno(), container.apparent, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                raise from_os_error(error, container.records) from None
            raise StorageError(f"{container.records}: cannot be mapped: {error}") from None
        mapping.madvise(mmap.MADV_RANDOM)
        # Kernels without large pages refuse it.
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
        self._whole = memoryview(mapping)
        self._open = True

    def view(self, key: Key) -> memoryview:
        """A record where it is mapped, valid until `close`. Raises StorageError, DamagedError."""
        return self.views([key])[0]

    def views(self, keys: Sequence[Key]) -> list[memoryview]:
        """Records where they are mapped, brought in together; valid until `close`. Raises as `view`."""
        places = self._places(keys)
        # A page beyond the end of a file that was cut short would end the process.
        self._require_whole(keys)
        due = [self.policy.due(key) for key in keys]
        views = [self._whole[offset : offset + size] for offset, size in places]
        if (cached := self._cached) is None:
            self._ask_ahead(places)
            came = [(0, view.nbytes, crc64(view) if one else 0) for one, view in zip(due, views, strict=True)]
        else:
            came = self._natively(cached.view, places, any(due))
            if any(error for error, _, _ in came):
                self._require_whole(keys)
        self.settle(keys, due, came)
        return views

    @contextmanager
    def lease(self, key: Key) -> Iterator[memoryview]:
        """See Backend."""
        yield self.view(key)

    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """See Backend."""
        size = self.container.header.slot_bytes
        views = self.buffers(keys, into, size)
        places = self._places(keys)
        due = [self.policy.due(key) for key in keys]
        if (cached := self._cached) is not None:
            wanted = [(offset, size, size, view) for (offset, _), view in zip(places, views, strict=True)]
            self.settle(keys, due, self._natively(cached.read, wanted, any(due)))
            return
        self._ask_ahead(places)
        for key, one, view in zip(keys, due, views, strict=True):
            self.container.read(*key, into=view, verify=False)
            self.settle([key], [one], [(0, size, crc64(view[:size]) if one else 0)])

    def close(self) -> None:
        """See Backend. Where a view is still held, the mapping goes with it."""
        self._open = False
        self._cached = None
        # Another thread's read may be at it.
        with suppress(BufferError):
            self._whole.release()

    def _places(self, keys: Sequence[Key]) -> list[tuple[int, int]]:
        for key in keys:
            self.container.checksum(*key)
        self.require_open(self._open)
        return [(self.container.header.offset(*key), self.container.header.slot_bytes) for key in keys]

    def _natively(self, call: Any, what: Any, checked: bool) -> list[tuple[int, int, int]]:
        try:
            came: list[tuple[int, int, int]] = call(self._whole, what, checked)
        except RuntimeError as error:
            raise StorageError(f"{self.container.records}: {error}") from None
        return came

    def _require_whole(self, keys: Sequence[Key]) -> None:
        there = os.fstat(self.container.fileno()).st_size
        if keys and there != self.container.apparent:
            ends = {key: self.container.header.offset(*key) + self.container.header.slot_bytes for key in keys}
            key = next((key for key in keys if ends[key] > there), keys[0])
            raise self.container.short(*key, max(0, there - self.container.header.offset(*key)))

    def _ask_ahead(self, places: Sequence[tuple[int, int]]) -> None:
        # A call asks ahead no more than the drive's read_ahead_kb.
        for offset, size in places:
            for begin in range(offset, offset + size, _PIECE):
                length = min(_PIECE, offset + size - begin)
                with suppress(OSError):
                    os.posix_fadvise(self.container.fileno(), begin, length, os.POSIX_FADV_WILLNEED)
