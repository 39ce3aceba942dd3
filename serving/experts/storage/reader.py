"""Reading a container: opened only if it is what was expected and whole; every record against its checksum."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.experts.storage import sidecar
from serving.experts.storage.checksum import crc64
from serving.experts.storage.header import TRAILER_BYTES, Header, Key
from serving.experts.storage.places import Folder
from serving.experts.storage.refusal import DamagedError, StorageError, from_os_error

_TRIES = 20
_BLOCK = 512


@dataclass(frozen=True)
class Expect:
    """What a container must be; None is not asked.

    Attributes:
        kind: the header's kind.
        checkpoint: identity of the checkpoint, 64 hex digits.
        quantizer_abi: number of the quantizer's output format.
        zero_mode: the quantizer's.
        experts: experts of a layer.
        slot_bytes: bytes of a record.
        layers: layers that must be among the container's.
    """

    kind: str | None = None
    checkpoint: str | None = None
    quantizer_abi: int | None = None
    zero_mode: str | None = None
    experts: int | None = None
    slot_bytes: int | None = None
    layers: Sequence[int] | None = None


class Container:
    """An open container. What it was opened with stays readable when a writer replaces it.

    Attributes:
        path: its folder.
        header: what it holds.
        content: its content id, 64 hex digits.
    """

    def __init__(self, path: Path, found: sidecar.Sidecar, fd: int) -> None:
        self.path, self.header, self.content = path, found.header, found.content
        self._checksums, self._fd, self._name = found.checksums, fd, found.records
        self._mutex = threading.Lock()

    @classmethod
    def open(cls, path: Path, expect: Expect | None = None) -> "Container":
        """Opens the container in the folder `path`.

        Raises StorageError: nothing there, a draft only, another version, not what was expected, a sidecar and a file
        of records that do not belong together, a file cut short, a link, no permission.
        """
        with Folder(path) as folder:
            before = ""
            for _ in range(_TRIES):
                found = _sidecar(folder)
                _compare(path, found.header, expect or Expect())
                try:
                    fd = folder.open(found.records)
                except FileNotFoundError:
                    # A writer may just have put another in place of both.
                    if found.content == before:
                        break
                    before = found.content
                    continue
                try:
                    _whole(path / found.records, fd, found)
                except BaseException:
                    os.close(fd)
                    raise
                return cls(path, found, fd)
            raise StorageError(_not_together(folder, found))

    def __enter__(self) -> "Container":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        with self._mutex:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    @property
    def records(self) -> Path:
        """Where the file of records is, or was when it was opened."""
        return self.path / self._name

    @property
    def apparent(self) -> int:
        """Bytes of the file of records, holes counted."""
        return self.header.apparent

    @property
    def allocated(self) -> int:
        """Bytes that the file of records takes on disk."""
        return os.fstat(self.fileno()).st_blocks * _BLOCK

    def __contains__(self, key: Key) -> bool:
        return key in self._checksums

    def present(self) -> list[Key]:
        """The (layer, expert) of all records that are there, in the file's order."""
        return sorted(self._checksums)

    def checksum(self, layer: int, expert: int) -> int:
        """CRC-64/NVME of a record, as the sidecar has it. Raises StorageError where there is no such record."""
        self.header.offset(layer, expert)
        if (layer, expert) not in self._checksums:
            raise StorageError(f"{self.path}: layer {layer}, expert {expert} is absent from it: write it first")
        return self._checksums[layer, expert]

    def fileno(self) -> int:
        """Descriptor of the file of records. Raises StorageError when closed."""
        if self._fd < 0:
            raise StorageError(f"{self.path}: was closed")
        return self._fd

    def read(self, layer: int, expert: int, into: Any = None, verify: bool = True) -> memoryview:
        """Reads a record and returns its slot_bytes, in `into` if that is given (writable, that large or larger).

        Raises StorageError: no such record, too small a buffer, a file cut short; DamagedError: a wrong checksum.
        """
        size = self.header.slot_bytes
        expected = self.checksum(layer, expert)
        view = memoryview(bytearray(size) if into is None else into).cast("B")
        if view.nbytes < size or view.readonly:
            raise StorageError(f"buffer of {view.nbytes:,} bytes; expected a writable one of at least {size:,}")
        view = view[:size]
        done, offset = 0, self.header.offset(layer, expert)
        while done < size:
            try:
                got = os.preadv(self.fileno(), [view[done:]], offset + done)
            except OSError as error:
                raise from_os_error(error, self.records) from None
            if got == 0:
                raise self.short(layer, expert, done)
            done += got
        if verify and (found := crc64(view)) != expected:
            raise self.damaged(layer, expert, found)
        return view

    def damaged(self, layer: int, expert: int, found: int) -> DamagedError:
        """The refusal of a record whose checksum came out as `found`."""
        return DamagedError(
            f"{self.records}: layer {layer}, expert {expert} (at byte {self.header.offset(layer, expert):,}): checksum "
            f"{found:016x}; expected {self._checksums[layer, expert]:016x}: its bytes changed since they were written; "
            "restore the file, or write the container again",
            layer,
            expert,
        )

    def short(self, layer: int, expert: int, got: int) -> StorageError:
        """The refusal of a record of which only `got` bytes came."""
        return StorageError(
            f"{self.records}: layer {layer}, expert {expert}: {got:,} of {self.header.slot_bytes:,} bytes: the file "
            "was cut short while it was open; restore it, or write the container again"
        )


def _sidecar(folder: Folder) -> sidecar.Sidecar:
    where = folder.path / sidecar.SIDECAR
    try:
        return sidecar.read(folder.load(sidecar.SIDECAR), str(where))
    except FileNotFoundError:
        pass
    if folder.has("draft.json"):
        holder = folder.holder()
        state = f"{holder} is writing it" if holder else "its writer was stopped: run the same command again"
        raise StorageError(f"{folder.path}: is not finished; {state}")
    raise StorageError(f"{where}: is not there; expected the folder of a container, which holds it")


def _compare(path: Path, header: Header, expect: Expect) -> None:
    advice = {
        "kind": "name a container of that kind",
        "checkpoint": "it was made from another model, or from other weights of it: write it from this checkpoint",
        "quantizer_abi": "quantize again with this release",
    }
    for name in ("kind", "checkpoint", "quantizer_abi", "zero_mode", "experts", "slot_bytes"):
        wanted, there = getattr(expect, name), getattr(header, name)
        if wanted is not None and wanted != there:
            raise StorageError(
                f"{path}: {name} {there!r}; expected {wanted!r}: " + advice.get(name, "it does not fit this model")
            )
    if lacking := [layer for layer in expect.layers or () if layer not in header.layers]:
        raise StorageError(f"{path}: has no layer {lacking[0]}; it does not fit this model")


def _whole(path: Path, fd: int, found: sidecar.Sidecar) -> None:
    size, expected = os.fstat(fd).st_size, found.header.apparent
    again = "restore it, or write the container again"
    if size != expected:
        word = "was cut short" if size < expected else "has bytes that are not the container's"
        raise StorageError(f"{path}: {size:,} bytes; expected {expected:,}: it {word}; {again}")
    try:
        end = os.pread(fd, TRAILER_BYTES, expected - TRAILER_BYTES)
    except OSError as error:
        raise from_os_error(error, path) from None
    if end != sidecar.trailer(found.header, found.content):
        raise StorageError(
            f"{path}: its last {TRAILER_BYTES} bytes are not those that {sidecar.SIDECAR} needs; {again}"
        )


def _not_together(folder: Folder, found: sidecar.Sidecar) -> str:
    others = [name for name in folder.names() if sidecar.RECORDS.fullmatch(name)]
    there = f"there is {', '.join(others)}" if others else "there is no file of records"
    return (
        f"{folder.path / sidecar.SIDECAR}: belongs to {found.records}, and {there}: the sidecar is older or newer than "
        "the records, or was changed; restore both from one copy, or write the container again"
    )
