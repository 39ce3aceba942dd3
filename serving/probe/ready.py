"""Whether a server is ready: it runs, its image is attested, and it has computed a token."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from images.engine.errors import EngineError
from serving.containers.state import ContainerState
from serving.probe.api import Api
from serving.probe.asking import ProbeError
from serving.probe.attested import Attested, attested, from_json
from serving.probe.questions import Canary, canary

_ATTEST = ("moet-serve", "attest", "--json")
_LOG_SECONDS = 5


class Lines(Iterator[str], Protocol):
    """Lines of a log, as they are written."""

    def close(self) -> None:
        """Ends them."""


class Asked(Protocol):
    """What is asked of a container: serving.containers.container.Container."""

    def state(self) -> ContainerState:
        """What it is doing now."""

    def follow(self, since: float | None = None) -> Lines:
        """Its log from `since` (epoch) on."""

    def run_in(self, command: Sequence[str]) -> tuple[int, str]:
        """Runs a command in it; its exit status and output."""


@dataclass(frozen=True)
class Readiness:
    """Whether a server is ready, and if not, why, in one line; what it was attested as, and the token that it gave."""

    ok: bool
    why: str = ""
    attested: Attested | None = None
    canary: Canary | None = None


def ready(container: Asked, api: Api, timeout: float) -> Readiness:
    """Asks a container and its API; the token must come in `timeout` seconds. Raises EngineError."""
    state = container.state()
    if not state.running:
        code = f" with {state.exit_code}" if state.status == "exited" else ""
        return Readiness(False, f"the container is {state.status}{code}")
    # A server that has no API yet may be before its report, for which one would wait here.
    try:
        token = canary(api, timeout)
    except ProbeError as error:
        return Readiness(False, str(error))
    report = attestation(container, state.started_at)
    if report is None:
        return Readiness(False, "it answers, and its image is not attested: its log has no report", None, token)
    return Readiness(True, "", report, token)


def attestation(container: Asked, started_at: float | None) -> Attested | None:
    """The report of a container that has been up since `started_at` (epoch); None where its image is not attested.

    Where its log has lost its beginning, or cannot be read, the image is attested anew, in the container. Raises
    EngineError where the engine does not answer.
    """
    return _answer(container, lambda: _logged(container, started_at)) or _answer(container, lambda: _anew(container))


def _logged(container: Asked, started_at: float | None) -> Attested | None:
    with closing(container.follow(started_at)) as lines:
        # Lines that are there come at once; for more of them one would wait as long as the server is quiet.
        timer = threading.Timer(_LOG_SECONDS, lines.close)
        timer.start()
        try:
            return attested(lines)
        finally:
            timer.cancel()


def _anew(container: Asked) -> Attested | None:
    status, output = container.run_in(_ATTEST)
    return from_json(output) if status == 0 else None


def _answer(container: Asked, ask: Callable[[], Attested | None]) -> Attested | None:
    """What `ask` finds; None where the engine answers and refuses, as with a log that its driver does not keep."""
    try:
        return ask()
    except EngineError:
        container.state()
        return None
