"""Files and folders that are there whole or not at all, whenever the writer is stopped."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Puts `data` in place of the file in one stroke, safe on disk at return; a reader sees old or new.

    Folders are made as needed. Raises OSError, and then leaves the old file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        draft.rename(path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Makes the folder `path` with `files` (name to content) in one stroke; it must not exist yet.

    Raises FileExistsError, or another OSError; nothing is left then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    try:
        for name, data in files.items():
            write(draft / name, data)
        draft.chmod(0o777 & ~_umask())
        if path.exists():
            raise FileExistsError(17, "exists already", str(path))
        draft.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder safe on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
