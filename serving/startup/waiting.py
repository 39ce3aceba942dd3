"""From a container that was started to a server that answers, or to the reason why it does not."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from images.engine.errors import EngineError
from serving.probe.api import Api
from serving.probe.ready import Asked, Readiness, ready
from serving.profiles.model import Start
from serving.startup.display import display
from serving.startup.failure import Reason, StartFailedError, ended
from serving.startup.log import Log
from serving.startup.phases import Tracker
from serving.startup.stillness import Stillness
from serving.startup.wording import duration
from tools.cli.output import Output

Found = TypeVar("Found")

_ALIVE = ("paused", "restarting", "running")
_POLL_SECONDS = 0.25
_STATE_SECONDS = 1.0
# Until it listens, a question is answered at once, and with no.
_SOON_SECONDS, _LATER_SECONDS = 1.0, 10.0
_TOKEN_SECONDS = 60.0
# How long an engine may be away, as it is while its daemon is restarted.
_AWAY_SECONDS = 120.0


class Server(Asked, Protocol):
    """What is waited for: serving.containers.container.Container."""

    def cpu_seconds(self) -> float | None:
        """What its processes have computed for; None where the engine does not say. Raises EngineError."""


@dataclass(frozen=True)
class Started:
    """A server that is ready: after how many seconds, how many each phase took, and what it answered."""

    seconds: float
    phases: Mapping[str, float]
    readiness: Readiness


def wait_ready(
    container: Server,
    api: Api,
    expected: Start,
    out: Output,
    what: str = "starting",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Started:
    """Waits until a server is attested and has computed a token.

    Args:
        container: that was started.
        api: the server's.
        expected: how long it may take, from the container's start; the profile's `start` or `first_start`.
        out: where progress is shown.
        what: is started, in a few words.
        clock: seconds that only go forward.
        sleep: waits some seconds.

    Raises StartFailedError where it does not become ready, also for Ctrl-C; EngineError where the engine has been
    away for two minutes. The container is left as it is.
    """
    waiting = _Waiting(container, api, expected, clock)
    try:
        with display(out, what, expected) as shown:
            while True:
                for note in waiting.look():
                    out.note(f"{what}: {note}")
                shown.show(waiting.tracker, waiting.elapsed)
                if waiting.readiness.ok:
                    return Started(waiting.elapsed, dict(waiting.tracker.seconds), waiting.readiness)
                waiting.judge()
                sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        raise waiting.failed("interrupted", "by whoever waited for it") from None
    finally:
        waiting.log.close()


class _Waiting:
    """One container while it is waited for."""

    def __init__(self, container: Server, api: Api, expected: Start, clock: Callable[[], float]) -> None:
        self._container, self._api, self._expected, self._clock = container, api, expected, clock
        self._away_since: float | None = None
        self._state_at = self._asked_at = float("-inf")
        self._stillness = Stillness(lambda: self._reach(container.cpu_seconds))
        self.readiness = Readiness(False, "it was not asked yet")
        self.tracker = Tracker(clock)
        state = container.state()
        # Whoever goes on with a wait counts from the container's start.
        since = state.started_at if state.running else None
        self._begin = clock() - (0.0 if since is None else max(0.0, time.time() - since))
        self.log = Log(container, state.started_at)

    @property
    def elapsed(self) -> float:
        """Seconds since the container's start."""
        return self._clock() - self._begin

    def look(self) -> list[str]:
        """Reads the log, asks engine and server where it is time to, and returns what is worth saying."""
        self._read()
        now = self._clock()
        if now - self._state_at >= _STATE_SECONDS:
            self._state_at = now
            state = self._reach(self._container.state)
            if state is not None:
                if state.status not in _ALIVE:
                    for line in self.log.rest(5):
                        self.tracker.feed(line)
                    raise ended(state, self.tracker.phase, self.elapsed, list(self.log.lines))
                self.log.keep_up()
        listens = self.tracker.phase.name in ("api", "up") or not self.log.lines
        if now - self._asked_at >= (_SOON_SECONDS if listens else _LATER_SECONDS):
            seconds = max(1.0, min(_TOKEN_SECONDS, self._expected.deadline - self.elapsed))
            answer = self._reach(lambda: ready(self._container, self._api, seconds))
            self.readiness = answer or self.readiness
            self._asked_at = self._clock()
            # An answer may take a minute, in which more was logged.
            self._read()
        note = self._stillness.look(self.tracker)
        return [note] if note else []

    def _read(self) -> None:
        for line in self.log.new():
            self.tracker.feed(line)

    def judge(self) -> None:
        """Raises StartFailedError where it has no time left, or has come to a stop."""
        if self._stillness.hung:
            raise self.failed("hung", f"{self._stillness.words(self.tracker)}; {self.readiness.why}")
        if self.elapsed >= self._expected.deadline:
            quiet = f"; {self._stillness.words(self.tracker)}" if self.tracker.quiet >= 60 else ""
            last = f"; its last line: {self.tracker.last}" if self.tracker.last else ""
            why = f"not ready within {duration(self._expected.deadline)}: {self.readiness.why}{quiet}{last}"
            raise self.failed("deadline", why)

    def failed(self, reason: Reason, what: str) -> StartFailedError:
        """The failure of a container that runs on."""
        return StartFailedError(reason, self.tracker.phase, self.elapsed, what, None, list(self.log.lines))

    def _reach(self, ask: Callable[[], Found]) -> Found | None:
        """What the engine answers; None while it is away. Raises EngineError where it stays away."""
        try:
            answer = ask()
        except EngineError:
            self._away_since = self._clock() if self._away_since is None else self._away_since
            if self._clock() - self._away_since >= _AWAY_SECONDS:
                raise
            return None
        self._away_since = None
        return answer
