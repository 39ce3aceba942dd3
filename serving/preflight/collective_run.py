"""The collective program (collective.py) in a container of an image: started, waited for, and removed."""

import inspect
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from images.engine.errors import EngineError
from serving.containers.state import ContainerState
from serving.launch.launch import Launch
from serving.preflight import collective, collective_result
from serving.preflight.collective_result import Document

# Of the whole: the program itself tells a hang sooner.
DEADLINE_S = 600.0
LABELS = {"org.moet.preflight": "all-reduce"}
_POLL_S = 0.2
# What decides how GPUs reach each other; the server's other variables say nothing to the program.
_PASSED = ("CUDA_", "NCCL_")


class Container(Protocol):
    """A container, as serving/containers has it."""

    def state(self) -> ContainerState:
        """What it is doing now."""

    def start(self) -> None:
        """Starts it."""

    def logs(self) -> str:
        """What it wrote."""

    def remove(self) -> None:
        """Kills and removes it."""


class Containers(Protocol):
    """An engine's containers, as serving/containers has them."""

    def create(self, launch: Launch, name: str, labels: Mapping[str, str], key: str | None) -> Container:
        """Makes a container, which is not started."""

    def find(self, name: str) -> Container | None:
        """The container that is called `name`."""

    def labelled(self, labels: Mapping[str, str]) -> list[Any]:
        """The containers that have all of these labels."""

    def close(self) -> None:
        """Give the connection back."""


class NoResultError(Exception):
    """The program came to no document; why, in one line."""


class BusyError(Exception):
    """Another preflight's program runs; one line."""


def text() -> str:
    """The program."""
    return inspect.getsource(collective)


def run(
    containers: Containers,
    launch: Launch,
    tp: int,
    groups: int,
    more: Mapping[str, str] | None = None,
    seconds: float = DEADLINE_S,
) -> Document:
    """Runs the program as the launch's server would run: its image, GPUs, limits, options, and NCCL's variables.

    The container has no network but the host's where the launch has that, no folder, and no key. It is removed,
    whatever happens; one that an earlier preflight left is removed first.

    Args:
        containers: the engine.
        launch: the server's.
        tp: GPUs that sum together.
        groups: how many such groups there are.
        more: variables beside.
        seconds: when to give up.

    Raises NoResultError, BusyError, and what `containers` does.
    """
    _clear(containers)
    given = {name: value for name, value in launch.environment.items() if name.startswith(_PASSED)}
    words = ("exec", "python3.11", "-c", text(), f"--tp={tp}", f"--groups={groups}")
    program = replace(
        launch,
        network="host" if launch.network == "host" else "none",
        binds=(),
        key=None,
        environment={**given, **(more or {})},
        arguments=words,
    )
    container = containers.create(program, f"{launch.host_name}.all-reduce", LABELS, None)
    try:
        container.start()
        ended = time.monotonic() + seconds
        while (state := container.state()).running:
            if time.monotonic() > ended:
                last = _last(container.logs())
                raise NoResultError(f"no end within {seconds:g} s, and was killed; the last it wrote: {last}")
            time.sleep(_POLL_S)
        return _document(container.logs(), state, len(launch.gpus))
    finally:
        container.remove()


def _clear(containers: Containers) -> None:
    for left in containers.labelled(LABELS):
        state = left.state()
        if state.running:
            raise BusyError(f"{state.name} runs: another preflight's; docker rm -f {state.name} ends it")
        with suppress(EngineError):
            left.remove()


def _document(log: str, state: ContainerState, gpus: int) -> Document:
    for line in reversed(log.splitlines()):
        if found := collective_result.parse(line, gpus):
            return found
    how = "killed for want of memory" if state.oom_killed else f"status {state.exit_code}"
    raise NoResultError(f"ended without a result, {state.error or how}; the last it wrote: {_last(log)}")


def _last(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"
