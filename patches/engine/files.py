"""A file of a draft that is put in place as a whole later."""

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
