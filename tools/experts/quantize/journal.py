"""Counts of the experts that are done, beside the draft that they belong to, so that a killed run loses none.

A line an expert. A line that is missing, cut off or damaged is no loss beyond work: its expert is quantized again.
"""

import json
import os
import threading
import zlib
from pathlib import Path

from serving.experts.storage.places import Folder
from serving.experts.storage.refusal import from_os_error
from tools.experts.quantize.counted import ByExpert, Counted, Key
from tools.experts.quantize.facts import Counts

NAME = "draft.counts"


class Journal:
    """The counts of a run.

    Args:
        folder: where the draft lies.
        about: whose counts they are, one line; those of something else are thrown away.

    Raises StorageError for a link or what else is no file in its place, and where it cannot be read or written.
    """

    def __init__(self, folder: Path, about: str) -> None:
        self.path = folder / NAME
        self._counts = Counted()
        self._lock = threading.Lock()
        with Folder(folder) as opened:
            self._file = opened.open(NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            with os.fdopen(os.dup(self._file), "rb") as stream:
                line = stream.readline()
                known = line == _line(about) + b"\n"
                for line in stream if known else ():
                    self._take(line.removesuffix(b"\n"))
            if not known:
                os.ftruncate(self._file, 0)
                self._write(_line(about) + b"\n")
            elif not line.endswith(b"\n"):
                # A line that was cut off must not run into the next one.
                self._write(b"\n")
        except OSError as error:
            os.close(self._file)
            raise from_os_error(error, self.path, "write") from None

    def __contains__(self, key: Key) -> bool:
        return key in self._counts

    def put(self, key: Key, counts: list[Counts]) -> None:
        """Notes the counts of an expert's w1, w3 and w2. Raises StorageError."""
        line = _line(json.dumps([*key, *(one.numbers() for one in counts)], separators=(",", ":"))) + b"\n"
        with self._lock:
            try:
                self._write(line)
            except OSError as error:
                raise from_os_error(error, self.path, "write") from None
            self._counts.put(key, counts)

    def all(self) -> ByExpert:
        """The counts of every expert, in order."""
        return self._counts

    def close(self) -> None:
        """Ends it; the file stays."""
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        done = 0
        while done < len(data):
            done += os.write(self._file, data[done:])

    def _take(self, line: bytes) -> None:
        try:
            text = line[9:].decode()
            if line != _line(text):
                return
            layer, expert, *numbers = json.loads(text)
            self._counts.put((int(layer), int(expert)), [Counts.of(one) for one in numbers])
        except (ValueError, TypeError, OverflowError):
            return


def _line(text: str) -> bytes:
    return f"{zlib.crc32(text.encode()):08x} {text}".encode()
