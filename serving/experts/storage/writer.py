"""Writing a container: record by record, safe against kills, full disks and other writers."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from serving.experts.storage import sidecar
from serving.experts.storage.checksum import crc64
from serving.experts.storage.commit import (
    DATA,
    DRAFT,
    JOURNAL,
    NEXT,
    differ,
    finish_commit,
    load,
    refuse_finished,
    remove_draft,
    tidy,
)
from serving.experts.storage.header import TRAILER_BYTES, Header, Key
from serving.experts.storage.places import Folder, read_all, write_all
from serving.experts.storage.refusal import StorageError, from_os_error

# In units of sync_bytes.
_MOST_WAITING = 4


class Writer:
    """Writes one container; made by `Writer.open`. `put` may be called from several threads.

    Attributes:
        header: what is written.
        resumed: how many records an earlier run had left.
    """

    def __init__(self, folder: Folder, header: Header, sync_bytes: int) -> None:
        self.header, self._folder, self._sync_bytes = header, folder, sync_bytes
        self._done: dict[Key, int] = {}
        self._pending: dict[Key, int] = {}
        self._mutex, self._flushing = threading.Lock(), threading.Lock()
        self._data = self._journal = -1
        self._over = False
        self._lost: StorageError | None = None
        self.resumed = 0

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        header: Header,
        replace: bool = False,
        restart: bool = False,
        sync_bytes: int = 256 << 20,
        records: int | None = None,
    ) -> Iterator["Writer"]:
        """Begins, or goes on with, a container in the folder `path`, as a context.

        Without `commit`, what was put stays as a draft, from which a later run with the same header goes on.

        Args:
            path: the folder; made if need be.
            header: what is to be written.
            replace: whether a finished container there is replaced, at commit.
            restart: whether a draft there is thrown away.
            sync_bytes: after so many bytes, what was put is made safe on disk.
            records: how many records there will be, if fewer than all; free space is compared with it.

        Raises:
            AlreadyCompleteError: a finished container with the same header is there, and `replace` is not set.
            StorageError: another writer, another container or draft, no room, no permission.
        """
        with ExitStack() as stack:
            folder = stack.enter_context(Folder(path, make=True))
            stack.enter_context(folder.locked())
            finish_commit(folder)
            tidy(folder)
            if not replace:
                refuse_finished(folder, header)
            if restart:
                remove_draft(folder)
            writer = cls(folder, header, sync_bytes)
            stack.callback(writer._close)
            writer._begin(header.total if records is None else records)
            try:
                yield writer
            except BaseException:
                with suppress(StorageError):
                    writer.flush()
                raise
            writer.flush()

    @staticmethod
    def discard(path: Path) -> None:
        """Removes a draft, if there is one; a finished container stays. Raises StorageError."""
        with Folder(path) as folder, folder.locked():
            finish_commit(folder)
            remove_draft(folder)

    @property
    def done(self) -> int:
        """Records that are there."""
        with self._mutex:
            return len(self._done.keys() | self._pending.keys())

    @property
    def total(self) -> int:
        """Records that there can be."""
        return self.header.total

    def __contains__(self, key: Key) -> bool:
        with self._mutex:
            return key in self._done or key in self._pending

    def checksum(self, layer: int, expert: int) -> int:
        """CRC-64/NVME of a record that was put. Raises KeyError."""
        with self._mutex:
            return self._pending[layer, expert] if (layer, expert) in self._pending else self._done[layer, expert]

    def missing(self) -> Iterator[Key]:
        """Records that are not there yet, in the file's order."""
        for layer in self.header.layers:
            for expert in range(self.header.experts):
                if (layer, expert) not in self:
                    yield layer, expert

    def put(self, layer: int, expert: int, data: Any) -> None:
        """Writes a record: contiguous bytes, slot_bytes of them.

        Put again with the same bytes, nothing is done. Raises StorageError: another size, other bytes than before, no
        room.
        """
        offset = self.header.offset(layer, expert)
        view = memoryview(data).cast("B")
        if view.nbytes != self.header.slot_bytes:
            raise StorageError(
                f"layer {layer}, expert {expert}: a record of {view.nbytes:,} bytes; "
                f"expected {self.header.slot_bytes:,}"
            )
        if self._over:
            raise StorageError(f"{self._folder.path}: was committed already; open a writer again")
        if self._lost:
            raise self._lost
        checksum = crc64(view)
        if (layer, expert) in self:
            if checksum != self.checksum(layer, expert):
                raise StorageError(
                    f"{self._folder.path}: layer {layer}, expert {expert} was put already, with other bytes; the same "
                    "input must give the same bytes: throw the draft away with --restart"
                )
            return
        try:
            write_all(self._data, view, offset)
            # Begins to write it back, so that the next sync finds little left. A store is larger than RAM, too: its
            # pages would push out what the checkpoint is read from.
            os.posix_fadvise(self._data, offset, view.nbytes, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._failed(error) from None
        with self._mutex:
            if self._lost:
                raise self._lost
            self._pending[layer, expert] = checksum
            waiting = len(self._pending) * view.nbytes
        if waiting >= self._sync_bytes:
            # While one thread syncs, others go on, as long as not too much is unwritten.
            self._flush(wait=waiting >= _MOST_WAITING * self._sync_bytes)

    def flush(self) -> None:
        """Makes what was put safe on disk. Raises StorageError."""
        self._flush(wait=True)

    def commit(self, absent: bool = False, extra: Mapping[str, Any] | None = None) -> str:
        """Puts the container in its place in one stroke and returns its content id.

        Args:
            absent: whether records may be missing; they read as absent then.
            extra: facts known only now, added to the header's.

        Raises StorageError, and then leaves draft and old container as they were.
        """
        missing = list(self.missing())
        if missing and not absent:
            raise StorageError(
                f"{self._folder.path}: {len(missing)} of {self.total} records are missing, "
                f"first layer {missing[0][0]}, expert {missing[0][1]}: put them, then commit"
            )
        header = self.header
        if extra:
            values = {**header.document(), "extra": {**header.extra, **extra}}
            header = Header(**{name: values[name] for name in Header.__dataclass_fields__})
        self.flush()
        text = sidecar.write(header, self._done)
        content = sidecar.content_of(text)
        try:
            write_all(self._data, memoryview(sidecar.trailer(header, content)), header.apparent - TRAILER_BYTES)
            os.fsync(self._data)
        except OSError as error:
            self._lost = self._failed(error)
            raise self._lost from None
        # From here on a killed commit is finished by the next writer.
        self._folder.replace(NEXT, text)
        self._over = True
        finish_commit(self._folder)
        if load(self._folder, sidecar.SIDECAR) != text:
            raise StorageError(
                f"{self._folder.path}: something else removed or changed the draft during its commit: run this again"
            )
        return content

    def _begin(self, records: int) -> None:
        text = sidecar.write(self.header, {})
        draft = load(self._folder, DRAFT)
        if draft is not None and draft != text:
            raise StorageError(
                f"{self._folder.path}: holds the draft of something else ({differ(draft, self.header)}): "
                "go on with that, or throw it away with --restart"
            )
        if draft is None or not self._folder.has(DATA):
            remove_draft(self._folder)
            self._room(records)
            self._folder.replace(DRAFT, text)
        try:
            self._data = self._folder.open(DATA, os.O_RDWR | os.O_CREAT)
            self._journal = self._folder.open(JOURNAL, os.O_RDWR | os.O_CREAT)
            self._resume(records)
        except OSError as error:
            raise self._failed(error) from None

    def _resume(self, records: int) -> None:
        size = os.fstat(self._data).st_size
        if size not in (0, self.header.apparent):
            raise StorageError(
                f"{self._folder.path / DATA}: {size:,} bytes; expected {self.header.apparent:,}: the draft was "
                "changed by something else; throw it away with --restart"
            )
        if size == 0:
            os.ftruncate(self._journal, 0)
        lines = os.fstat(self._journal).st_size
        self._done, whole = sidecar.journal(read_all(self._journal, lines), self.header)
        os.ftruncate(self._journal, whole)
        os.lseek(self._journal, whole, os.SEEK_SET)
        self.resumed = len(self._done)
        self._room(records - self.resumed)
        os.ftruncate(self._data, self.header.apparent)

    def _room(self, records: int) -> None:
        need, free = records * self.header.slot_bytes, self._folder.free()
        if need > free:
            raise StorageError(
                f"{self._folder.path}: {records:,} records take {need:,} bytes, {free:,} are free on its file "
                "system: make room, or name a folder on another one"
            )

    def _flush(self, wait: bool) -> None:
        """Syncs data, then journal; where another thread is at it, waits or leaves it to that."""
        if not self._flushing.acquire(blocking=wait):
            return
        try:
            if self._lost:
                raise self._lost
            with self._mutex:
                some = dict(self._pending)
            if not some:
                return
            try:
                os.fdatasync(self._data)
                lines = b"".join(sidecar.journal_entry(key, value) for key, value in some.items())
                write_all(self._journal, memoryview(lines), os.lseek(self._journal, 0, os.SEEK_CUR))
                os.lseek(self._journal, len(lines), os.SEEK_CUR)
                os.fdatasync(self._journal)
            except OSError as error:
                # The kernel tells of a failed write once: nobody knows what else of it is on disk. What no journal
                # has counts as not put, and this writer writes no more.
                with self._mutex:
                    self._lost = self._failed(error)
                    self._pending.clear()
                raise self._lost from None
            with self._mutex:
                self._done.update(some)
                for key in some:
                    del self._pending[key]
        finally:
            self._flushing.release()

    def _failed(self, error: OSError) -> StorageError:
        failed = from_os_error(error, self._folder.path / DATA, "write")
        return StorageError(f"{failed} ({len(self._done)} of {self.total} records are safe in the draft)")

    def _close(self) -> None:
        self._over = True
        for fd in (self._data, self._journal):
            if fd >= 0:
                os.close(fd)
