"""One file out of a tar that an engine sends."""

import io
import tarfile
from collections.abc import Iterator

from images.engine.errors import EngineError

# Whatever is read of an image is a document.
_LIMIT = 64 << 20


class _Stream(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._held) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._held += chunk
        size = len(self._held) if size < 0 else size
        taken, self._held = self._held[:size], self._held[size:]
        return taken


def first_file(chunks: Iterator[bytes], path: str) -> bytes | None:
    """The bytes of the tar's first entry where that is a regular file, else None; `path` names it in messages.

    Raises:
        EngineError: no tar, a short one, or a file of more than 64 MiB.
    """
    try:
        with tarfile.open(fileobj=_Stream(chunks), mode="r|") as tar:
            entry = tar.next()
            if entry is None or not entry.isreg():
                return None
            if entry.size > _LIMIT:
                raise EngineError(f"{path} in the image has {entry.size} bytes; at most {_LIMIT} were expected")
            stream = tar.extractfile(entry)
            data = stream.read() if stream else b""
    except tarfile.TarError as error:
        raise EngineError(f"{path}: what the engine sent of it is no tar ({error}); try again") from None
    if len(data) != entry.size:
        raise EngineError(f"{path}: the engine sent {len(data)} of {entry.size} bytes; try again")
    return data
