"""The last output of servers that failed, kept in the state folder: a bounded number of bounded files."""

import re
from pathlib import Path

from serving.generations import place
from tools.files import atomic

LINES = 5000
_BYTES = 4 << 20
_FILES = 50


def folder(name: str) -> Path:
    """The folder of a server's saved logs."""
    return place.folder(name) / "logs"


def save(name: str, generation: int | None, at: str, why: str, text: str) -> Path:
    """Keeps the end of an output; the oldest files beyond _FILES go.

    Args:
        name: of the server.
        generation: its number; None for a container that has none.
        at: when, UTC.
        why: the file's first line.
        text: the output, of which the last bytes are kept.

    Raises OSError.
    """
    where = folder(name)
    stamp = re.sub(r"[^0-9T]", "", at.partition("+")[0])
    what = "container" if generation is None else f"generation-{generation}"
    path = where / f"{stamp}-{what}.log"
    number = 1
    while path.exists():
        number += 1
        path = where / f"{stamp}-{what}-{number}.log"
    head = f"{name}, {what.replace('-', ' ')}, {at}: {why}\n".encode()
    atomic.write(path, head + text.encode(errors="replace")[-_BYTES:])
    for old in sorted(where.glob("*.log"), key=lambda one: one.stat().st_mtime)[:-_FILES]:
        old.unlink(missing_ok=True)
    return path
