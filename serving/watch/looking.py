"""One look at a server: from what an engine and an API answer to machine.Seen."""

import time
from dataclasses import dataclass, replace
from typing import Literal

from images.engine.errors import EngineError
from serving.containers.container import Container
from serving.containers.containers import Containers
from serving.containers.state import GONE, ContainerState
from serving.launch.key import VARIABLE
from serving.probe.api import Api
from serving.probe.asking import ProbeError
from serving.probe.metrics import Progress, metrics
from serving.watch.machine import Memory, Seen
from serving.watch.pace import Pace
from serving.watch.subject import Target
from tools.cli.errors import UserError

_METRICS_SECONDS = 10
_KINDS: dict[str, Literal["absent", "held", "running", "ended"]] = {
    "created": "held",
    "paused": "held",
    "restarting": "held",
    "running": "running",
    "exited": "ended",
    "dead": "ended",
    "removing": "absent",
    "gone": "absent",
}


@dataclass(frozen=True)
class Look:
    """What was found: for the machine, and what it was found in; `api` has the key that the container was made with."""

    seen: Seen
    container: Container | None = None
    state: ContainerState = GONE
    api: Api | None = None
    progress: Progress | None = None


def look(engine: Containers, target: Target, memory: Memory, pace: Pace) -> Look:
    """Looks at a server. Raises EngineError where the engine does not answer; UserError where no hang could be seen."""
    if target.operation or not target.wanted:
        return Look(Seen(operation=bool(target.operation), wanted=target.wanted))
    container = engine.find(target.container)
    state = GONE if container is None else container.state()
    kind = _KINDS[state.status]
    if container is None or kind in ("absent", "held"):
        return Look(Seen(container=kind), container, state)
    run = f"{container.id[:12]}@{state.started_at}"
    # Without its last log, one that was never started has nothing that ended.
    begun = state.started_at or 0.0
    up = kind == "running"
    api = replace(target.api, key=container.environment().get(VARIABLE)) if up else None
    progress = _progress(api, memory.ready and memory.run == run) if api else None
    by_hand = not up and memory.was_up and memory.run == run and container.signalled(begun)
    seen = Seen(
        container=kind,
        run=run,
        age=max(0.0, time.time() - begun),
        exit_code=state.exit_code,
        oom_killed=state.oom_killed,
        by_hand=by_hand,
        supervised=state.auto_remove,
        moved=pace.moved(run, progress),
    )
    return Look(seen, container, state, api, progress)


def _progress(api: Api, ready: bool) -> Progress | None:
    try:
        return metrics(api, _METRICS_SECONDS)
    except ProbeError as error:
        if error.refused and ready:
            raise UserError(f"a hang could not be seen: {error}") from None
        return None


class Engine:
    """The engine, opened anew whenever it has been away.

    Args:
        host: its address; None for DOCKER_HOST, else the context of the user's Docker configuration.
    """

    def __init__(self, host: str | None) -> None:
        self._host = host
        self._open: Containers | None = None
        self._pace = Pace()

    def look(self, target: Target, memory: Memory) -> Look:
        """Looks at a server, in vain where the engine does not answer. Raises UserError where no hang could be seen."""
        try:
            if self._open is None:
                self._open = Containers(self._host)
            return look(self._open, target, memory, self._pace)
        except EngineError:
            self.close()
            return Look(Seen(engine=False))

    def close(self) -> None:
        """Gives the connection back."""
        if self._open is not None:
            self._open.close()
            self._open = None
