"""What a commit does to a container's folder, so that the next writer can end one that was killed."""

import os

from serving.experts.storage import sidecar
from serving.experts.storage.header import TRAILER_BYTES, Header
from serving.experts.storage.places import Folder
from serving.experts.storage.refusal import AlreadyCompleteError, StorageError, from_os_error

DRAFT, DATA, JOURNAL, NEXT = "draft.json", "draft.bin", "draft.journal", "draft.sidecar"


def finish_commit(folder: Folder) -> None:
    """Ends a commit, this one or one that was killed; does nothing where none had begun in earnest."""
    text = load(folder, NEXT)
    if text is None:
        return
    content = sidecar.content_of(text)
    name = sidecar.records_name(content)
    if folder.has(DATA):
        if _content_of_data(folder) != content:
            # Killed, then gone on with: the trailer is another's. Or the sidecar was damaged: it is made again.
            folder.remove(NEXT)
            return
        folder.rename(DATA, name)
    if not folder.has(name):
        folder.remove(NEXT)
        return
    folder.rename(NEXT, sidecar.SIDECAR)
    tidy(folder)


def tidy(folder: Folder) -> None:
    """Removes what a finished commit leaves behind. A file that no sound sidecar replaces stays."""
    text = load(folder, sidecar.SIDECAR)
    if text is None or folder.has(DATA):
        return
    name = sidecar.records_name(sidecar.content_of(text))
    if folder.has(name):
        remove_draft(folder)
        for other in folder.names():
            if sidecar.RECORDS.fullmatch(other) and other != name:
                folder.remove(other)


def _content_of_data(folder: Folder) -> str:
    """The content id in the trailer of the draft's data; "" where there is none yet."""
    fd = folder.open(DATA)
    try:
        return sidecar.content_of_trailer(os.pread(fd, TRAILER_BYTES, max(0, os.fstat(fd).st_size - TRAILER_BYTES)))
    except OSError as error:
        raise from_os_error(error, folder.path / DATA) from None
    finally:
        os.close(fd)


def refuse_finished(folder: Folder, header: Header) -> None:
    """Raises StorageError where a finished container is there; AlreadyCompleteError, if with the same header."""
    text = load(folder, sidecar.SIDECAR)
    if text is None:
        return
    where = folder.path / sidecar.SIDECAR
    there = sidecar.read(text, str(where)).header
    if _same(there, header):
        raise AlreadyCompleteError(f"{folder.path}: is complete already; to write it anew, say --replace")
    raise StorageError(
        f"{folder.path}: holds a finished container ({differ(text, header)}): name another folder, or say --replace"
    )


def _same(there: Header, header: Header) -> bool:
    known = dict(there.extra)
    added = set(known) - set(header.extra)
    return {**there.document(), "extra": {k: v for k, v in known.items() if k not in added}} == header.document()


def differ(text: bytes, header: Header) -> str:
    """What differs between a sidecar and a header, in words."""
    try:
        there = sidecar.read(text, "it").header.document()
    except StorageError as error:
        return str(error)
    here = header.document()
    return "; ".join(f"{name} {there[name]!r}, not {here[name]!r}" for name in here if there[name] != here[name])


def remove_draft(folder: Folder) -> None:
    """Removes a draft, the data before what says what they are."""
    for name in (NEXT, DATA, JOURNAL, DRAFT):
        folder.remove(name)


def load(folder: Folder, name: str) -> bytes | None:
    """A small file's bytes, or None where it is not there."""
    try:
        return folder.load(name)
    except FileNotFoundError:
        return None
