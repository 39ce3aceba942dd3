"""Back end "mmap": records where the page cache has them; the kernel reads ahead and forgets."""

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from serving.experts.storage.backend import Backend, Verify
from serving.experts.storage.checksum import crc64
from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError, from_os_error

_PIECE = 128 << 10


class Mapped(Backend):
    """The file of records mapped into memory."""

    name = "mmap"

    def __init__(self, container: Container, verify: Verify = "always") -> None:
        super().__init__(container, verify)
        try:
            self._map = mmap.mmap(container.fileno(), container.apparent, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                raise from_os_error(error, container.records) from None
            raise StorageError(f"{container.records}: cannot be mapped: {error}") from None
        self._map.madvise(mmap.MADV_RANDOM)
        self._whole = memoryview(self._map)

    def view(self, key: Key) -> memoryview:
        """A record where it is mapped, valid until `close`. Raises StorageError, DamagedError."""
        container, size = self.container, self.container.header.slot_bytes
        container.checksum(*key)
        # A page beyond the end of a file that was cut short would end the process.
        if os.fstat(container.fileno()).st_size != container.apparent:
            raise container.short(*key, 0)
        offset = container.header.offset(*key)
        self._read_ahead(offset, size)
        view = self._whole[offset : offset + size]
        if self.policy.due(key):
            self.policy.check(key, crc64(view))
        return view

    def _read_ahead(self, offset: int, size: int) -> None:
        # The kernel reads ahead no more than a piece for each call, and the rest page by page.
        for begin in range(offset, offset + size, _PIECE):
            self._map.madvise(mmap.MADV_WILLNEED, begin, min(_PIECE, offset + size - begin))

    @contextmanager
    def lease(self, key: Key) -> Iterator[memoryview]:
        """See Backend."""
        yield self.view(key)

    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """See Backend."""
        size = self.container.header.slot_bytes
        for key in keys:
            self._read_ahead(self.container.header.offset(*key), size)
        for key, to in zip(keys, self.buffers(keys, into, size), strict=True):
            to[:size] = self.view(key)

    def close(self) -> None:
        """See Backend. Views must be gone."""
        self._whole.release()
        # Where a view is still held, the mapping goes with it.
        with suppress(BufferError):
            self._map.close()
