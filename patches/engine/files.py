"""Files written whole or not at all."""

import os
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Write a file that nobody reads yet, folders made as needed, mode 0644, safe on disk at return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(0o644)


def replace(path: Path, data: bytes) -> None:
    """Put `data` in place of a file in one stroke: a reader sees the old content or the new."""
    draft = path.with_name(path.name + ".partial")
    try:
        write(draft, data)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
