"""What a container is, how much of it there is, and whether its bytes are those that were written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from serving.experts.storage import sidecar
from serving.experts.storage.backends import available
from serving.experts.storage.buffers import aligned
from serving.experts.storage.commit import DRAFT, JOURNAL
from serving.experts.storage.direct_io import Direct
from serving.experts.storage.header import Header, Key
from serving.experts.storage.places import Folder
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import DamagedError, DeviceError, StorageError

_BATCH = 8


@dataclass(frozen=True)
class Draft:
    """What a writer has left, or is at.

    Attributes:
        header: what it writes.
        records: records that are safe.
        holder: who writes it now, "" for nobody.
    """

    header: Header
    records: int
    holder: str


@dataclass(frozen=True)
class Survey:
    """A container, or the draft of one, or both.

    Attributes:
        header: the finished container's; None where there is only a draft.
        content: its content id.
        records: how many records are present.
        allocated: bytes on disk of the file of records.
        damaged: records with wrong bytes; None where they were not read.
        unreadable: records that the device did not give; None where they were not read.
        verified: bytes that were read for it.
        draft: see Draft.
        draft_problem: what is wrong with a draft beside a finished container, "" for nothing.
        here: what of the back ends is there, name to "" or why not.
    """

    header: Header | None
    content: str
    records: int
    allocated: int
    damaged: list[Key] | None
    unreadable: list[Key] | None
    verified: int
    draft: Draft | None
    draft_problem: str
    here: dict[str, str]


def survey(path: Path, verify: bool, advance: Callable[[int, int], None]) -> Survey:
    """Looks at the folder `path`; with `verify` reads all records, telling `advance` (bytes read, bytes in all).

    Raises StorageError where there is neither container nor draft, or what there is cannot be opened.
    """
    finished = _finished(path)
    try:
        draft, problem = _draft(path), ""
    except StorageError as error:
        if not finished:
            raise
        draft, problem = None, str(error)
    if draft is not None and not finished:
        return Survey(None, "", 0, 0, None, None, 0, draft, "", available(path))
    with Container.open(path) as container:
        damaged, unreadable = _verify(container, advance) if verify else (None, None)
        present = container.present()
        return Survey(
            container.header,
            container.content,
            len(present),
            container.allocated,
            damaged,
            unreadable,
            (len(present) - len(unreadable or [])) * container.header.slot_bytes if verify else 0,
            draft,
            problem,
            available(path),
        )


def _finished(path: Path) -> bool:
    with Folder(path) as folder:
        return folder.has(sidecar.SIDECAR)


def _draft(path: Path) -> Draft | None:
    with Folder(path) as folder:
        try:
            header = sidecar.read(folder.load(DRAFT), str(path / DRAFT)).header
            records, _ = sidecar.journal(folder.load(JOURNAL), header)
        except FileNotFoundError:
            return None
        return Draft(header, len(records), folder.holder())


def _verify(container: Container, advance: Callable[[int, int], None]) -> tuple[list[Key], list[Key]]:
    """The records with wrong bytes, and those that the device does not give."""
    wrong: dict[type[StorageError], list[Key]] = {DamagedError: [], DeviceError: []}
    present, size = container.present(), container.header.slot_bytes
    room = [aligned(container.header.read_bytes) for _ in range(_BATCH)]
    with Direct(container) as reads:
        for first in range(0, len(present), _BATCH):
            some = present[first : first + _BATCH]
            try:
                reads.read(some, room[: len(some)])
            except (DamagedError, DeviceError):
                for key in some:
                    if (found := _wrong(reads, key, room[0])) is not None:
                        wrong[found].append(key)
            advance((first + len(some)) * size, len(present) * size)
    return wrong[DamagedError], wrong[DeviceError]


def _wrong(reads: Direct, key: Key, room: memoryview) -> type[StorageError] | None:
    try:
        reads.read([key], [room])
    except (DamagedError, DeviceError) as error:
        return type(error)
    return None
