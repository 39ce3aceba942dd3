"""A container's log, read beside whatever else is done."""

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from images.engine.errors import EngineError

# A start writes some hundred; a traceback on each of eight GPUs a few thousand.
_KEPT = 20_000


class Lines(Iterator[str], Protocol):
    """Lines as they are written."""

    def close(self) -> None:
        """Ends them, also for a thread that waits for one."""


class Logged(Protocol):
    """What has a log: serving.containers.container.Container."""

    def follow(self, since: float | None = None) -> Lines:
        """Its lines from `since` (epoch) on. Raises EngineError."""


class Log:
    """The lines of a container from `since` (epoch) on, as they come; `lines` has the last 20,000 of them."""

    def __init__(self, container: Logged, since: float | None) -> None:
        """Begins to read."""
        self.lines: deque[str] = deque(maxlen=_KEPT)
        self._container = container
        self._since = since
        self._new: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._following: Lines | None = None
        self._begin()

    def new(self) -> list[str]:
        """The lines that came since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._new.get_nowait())
        self.lines.extend(found)
        return found

    def rest(self, seconds: float) -> list[str]:
        """Of a container that has ended: the lines that are still to come, waiting for their end up to `seconds`."""
        self._thread.join(seconds)
        return self.new()

    def keep_up(self) -> None:
        """Reads on where the engine was away meanwhile; the lines of one second may come twice then."""
        if not self._thread.is_alive():
            self._begin()

    def close(self) -> None:
        """Ends the reading."""
        if self._following is not None:
            self._following.close()
        self._thread.join(5)

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # Some of Docker's logging drivers keep nothing that could be read, and an engine may go away.
        with suppress(EngineError):
            self._following = self._container.follow(self._since)
            for line in self._following:
                self._since = time.time()
                self._new.put(line)
