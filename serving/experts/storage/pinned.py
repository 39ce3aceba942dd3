"""Back end "pinned": records in page-locked RAM, from which a GPU copies without the CPU."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from serving.experts.storage import buffers
from serving.experts.storage.backend import Backend, Verify
from serving.experts.storage.direct_io import Direct
from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError

_BATCH = 16


class Pinned(Backend):
    """Chosen records in one page-locked stretch of memory, read and checked when it is made.

    Attributes:
        how: "cudaHostRegister", "mlock", or "" where the memory is ordinary; `note` says why.
    """

    name = "pinned"

    def __init__(self, container: Container, verify: Verify = "always", keys: Sequence[Key] | None = None) -> None:
        super().__init__(container, verify)
        chosen = list(dict.fromkeys(container.present() if keys is None else keys))
        if not chosen:
            raise StorageError(f"{container.path}: no records to hold in RAM; expected one or more")
        for key in chosen:
            container.checksum(*key)
        step = container.header.read_bytes
        self._memory = buffers.aligned(len(chosen) * step)
        self._at = {key: index * step for index, key in enumerate(chosen)}
        self._lock = buffers.Lock(self._memory)
        self.how, notes = self._lock.how, [self._lock.note]
        try:
            with Direct(container, verify) as below:
                notes.append(below.note)
                for first in range(0, len(chosen), _BATCH):
                    some = chosen[first : first + _BATCH]
                    below.read(some, [self._memory[self._at[key] : self._at[key] + step] for key in some])
        except BaseException:
            self._lock.release()
            raise
        self.note = "; ".join(note for note in notes if note)

    def view(self, key: Key) -> memoryview:
        """A record where it lies, read-only, valid until `close`. Raises StorageError where it is not held."""
        self.container.checksum(*key)
        self.require_open(bool(self._at))
        if key not in self._at:
            raise StorageError(
                f"layer {key[0]}, expert {key[1]}: is not held in RAM; hold it, or read another back end"
            )
        at = self._at[key]
        return self._memory[at : at + self.container.header.slot_bytes].toreadonly()

    def address(self, key: Key) -> int:
        """Address of a record: what a copy to a GPU takes."""
        return buffers.address(self.view(key))

    @contextmanager
    def lease(self, key: Key) -> Iterator[memoryview]:
        """See Backend."""
        yield self.view(key)

    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """See Backend."""
        size = self.container.header.slot_bytes
        for key, to in zip(keys, self.buffers(keys, into, size), strict=True):
            to[:size] = self.view(key)

    def close(self) -> None:
        """See Backend."""
        self._lock.release()
        self._at.clear()
        self._memory.release()
