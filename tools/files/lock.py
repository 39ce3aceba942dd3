"""One process at a time: an advisory lock that the kernel drops when its holder goes, however it goes."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cli.errors import UserError

_POLL_SECONDS = 0.1


@contextmanager
def exclusive(path: Path, wait_seconds: float = 0, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds the lock file `path`, which stays behind when it is given back.

    While another holds it, waits up to `wait_seconds`, after telling `waiting` who that is.

    Raises UserError that names the holder when it is still held then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + wait_seconds
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                if time.monotonic() >= deadline:
                    raise UserError(f"{path}: held by {holder}; wait for it to end, then run this again") from None
                if waiting is not None and not told:
                    waiting(f"waiting for {holder}, which holds {path}")
                    told = True
                time.sleep(_POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)
