"""Whether a start that logs nothing still computes."""

from collections.abc import Callable

from serving.startup.phases import Tracker
from serving.startup.wording import duration

# Reading a shard, compiling and tuning log nothing for minutes.
_SAY_SECONDS = 300
_LOOK_SECONDS = 60
_HUNG_SECONDS = 600
# Processes that wait for each other in NCCL spin; those that wait for a disk take some milliseconds a second.
_IDLE_CPU_SECONDS = 1.0


class Stillness:
    """Looks at a start while nothing is logged. `cpu` is the time that its processes computed, None where unknown."""

    def __init__(self, cpu: Callable[[], float | None]) -> None:
        """`cpu` is asked once a minute at most."""
        self._cpu = cpu
        self._base: tuple[float, float | None] | None = None
        self._looked_at = self._said_at = 0.0
        self.used: float | None = None

    def look(self, tracker: Tracker) -> str:
        """What is worth saying now, on one line; "" for nothing."""
        quiet = tracker.quiet
        if quiet < _LOOK_SECONDS:
            self._base, self._looked_at, self._said_at, self.used = None, 0.0, 0.0, None
            return ""
        if quiet - self._looked_at >= _LOOK_SECONDS:
            self._looked_at, now = quiet, self._cpu()
            self._base = self._base or (quiet, now)
            self.used = None if now is None or self._base[1] is None else now - self._base[1]
        if quiet - self._said_at < _SAY_SECONDS:
            return ""
        self._said_at = quiet
        return self.words(tracker)

    def words(self, tracker: Tracker) -> str:
        """How long nothing was logged, and what was computed meanwhile."""
        words = f"nothing was logged for {duration(tracker.quiet)}"
        if self.used is None:
            return words
        return f"{words}; in the last {duration(self._looked)} of it, {self.used:.0f} s were computed"

    @property
    def hung(self) -> bool:
        """Whether it has neither logged nor computed anything for ten minutes."""
        return self.used is not None and self.used < _IDLE_CPU_SECONDS and self._looked >= _HUNG_SECONDS

    @property
    def _looked(self) -> float:
        return self._looked_at - self._base[0] if self._base else 0.0
