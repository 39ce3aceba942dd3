"""Counts of the experts that are done, beside the draft that they belong to, so that a killed run loses none.

A line an expert. A line that is missing, cut off or damaged is no loss beyond work: its expert is quantized again.
"""

import json
import os
import threading
import zlib
from pathlib import Path

from tools.experts.quantize.facts import Counts

Key = tuple[int, int]

NAME = "draft.counts"


class Journal:
    """The counts of a run.

    Args:
        folder: where the draft lies.
        about: whose counts they are, one line; those of something else are thrown away.
    """

    def __init__(self, folder: Path, about: str) -> None:
        self.path = folder / NAME
        self._counts: dict[Key, list[Counts]] = {}
        self._lock = threading.Lock()
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        known = bool(lines) and lines[0] == _line(about)
        for line in lines[1:] if known else []:
            self._take(line)
        # A line that was cut off must not run into the next one.
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        if not known:
            os.ftruncate(self._file, 0)
            os.write(self._file, _line(about) + b"\n")
        elif lines[-1]:
            os.write(self._file, b"\n")

    def __contains__(self, key: Key) -> bool:
        return key in self._counts

    def put(self, key: Key, counts: list[Counts]) -> None:
        """Notes the counts of an expert's w1, w3 and w2. Raises OSError."""
        line = _line(json.dumps([*key, *(one.numbers() for one in counts)], separators=(",", ":"))) + b"\n"
        with self._lock:
            os.write(self._file, line)
            self._counts[key] = counts

    def all(self) -> dict[Key, list[Counts]]:
        """The counts of every expert, in order."""
        return dict(sorted(self._counts.items()))

    def close(self, remove: bool = False) -> None:
        """Ends it; `remove` when nobody needs it any more."""
        os.close(self._file)
        if remove:
            self.path.unlink(missing_ok=True)

    def _take(self, line: bytes) -> None:
        try:
            text = line[9:].decode()
            if line != _line(text):
                return
            layer, expert, *numbers = json.loads(text)
            self._counts[int(layer), int(expert)] = [Counts.of(one) for one in numbers]
        except (ValueError, TypeError):
            return


def _line(text: str) -> bytes:
    return f"{zlib.crc32(text.encode()):08x} {text}".encode()
