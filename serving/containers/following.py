"""A container's log as lines, while it is written."""

import codecs
import re
from collections.abc import Iterator
from typing import Protocol

# A progress bar is written over and over with carriage returns.
_ENDS = re.compile(r"[\r\n]+")


class Stream(Protocol):
    """Chunks of bytes that another thread can put an end to."""

    def __next__(self) -> bytes:
        """The next chunk; StopIteration at the end."""

    def close(self) -> None:
        """Ends the stream."""


class Following(Iterator[str]):
    """The lines of a log, without blank ones, until the container ends, the engine goes, or close()."""

    def __init__(self, stream: Stream) -> None:
        """`stream` is closed with this."""
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._lines: list[str] = []
        self._ended = False

    def __next__(self) -> str:
        """The next line, waiting for it."""
        while not self._lines:
            if self._ended:
                raise StopIteration
            try:
                text = self._decoder.decode(next(self._stream))
            except StopIteration:
                self._ended, text = True, "\n"
            *lines, self._rest = _ENDS.split(self._rest + text)
            self._lines = [line for line in lines if line.strip()]
        return self._lines.pop(0)

    def close(self) -> None:
        """Ends the lines, also for a thread that waits for one."""
        self._ended = True
        self._stream.close()
