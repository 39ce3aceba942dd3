"""For tests: a container and its engine in memory, and a watchdog of them whose clock a test moves."""

# ruff: noqa: ARG002, D102 - what each method does is said where the real ones are.

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from images.engine.errors import EngineError
from serving.containers.containers import Containers
from serving.containers.state import GONE, ContainerState
from serving.probe.api import Api
from serving.probe.fake_server import TOKEN, FakeServer
from serving.watch import looking
from serving.watch.looking import Engine
from serving.watch.machine import Limits
from serving.watch.meters import Meters
from serving.watch.subject import Target
from serving.watch.watch import Watch
from tools.cli.output import Output

NAME = "dsv41"
REPORT = [
    "moet: dsv41:vllm0.33.0-r1 (vllm 0.33.0, 4ba787ec9; unreleased): attested, 3 files (3 runtime), "
    "manifest 0123456789ab",
    "moet: step  name   numerics  switch  state",
    "moet: 1     tiers  none      -       on",
    "INFO vLLM",
]
FIGURES = "\n".join([
    'vllm:num_requests_running{{engine="0"}} 0',
    'vllm:num_requests_waiting{{engine="0"}} 0',
    'vllm:prompt_tokens_total{{engine="0"}} 0',
    'vllm:generation_tokens_total{{engine="0"}} {0}',
    "",
])


@dataclass
class FakeContainer:
    """A container, and its engine's Containers; `away` makes the engine not answer, `refuses` makes acts fail."""

    status: ContainerState
    log: list[str] = field(default_factory=lambda: list(REPORT))
    away: bool = False
    refuses: bool = False
    signals: bool = False
    done: list[str] = field(default_factory=list)
    id: str = "c" * 64

    def find(self, name: str) -> "FakeContainer | None":
        assert name == NAME
        self._answer()
        return None if self.status.gone else self

    def close(self) -> None:
        pass

    def state(self) -> ContainerState:
        self._answer()
        return self.status

    def environment(self) -> dict[str, str]:
        return {"VLLM_API_KEY": "k"}

    def logs(self, tail: int | None = None, since: float | None = None) -> str:
        assert since in (None, self.status.started_at)
        self._act()
        return "\n".join(self.log[-(tail or 0) :])

    def follow(self, since: float | None = None) -> "FakeLog":
        assert since == self.status.started_at
        return FakeLog(self.log)

    def run_in(self, command: Sequence[str]) -> tuple[int, str]:
        return 127, f"{command[0]}: not found"

    def signalled(self, since: float) -> bool:
        assert since == self.status.started_at
        return self.signals

    def start(self) -> None:
        self._act()
        self.done.append("start")
        self.status = replace(self.status, status="running", started_at=(self.status.started_at or 0) + 1)

    def stop(self, seconds: int) -> None:
        self._act()
        self.done.append("stop")
        self.end(0)

    def kill(self) -> None:
        self._act()
        self.done.append("kill")
        self.end(137)

    def end(self, code: int) -> None:
        """Its process ends."""
        self.status = GONE if self.status.auto_remove else replace(self.status, status="exited", exit_code=code)

    def _act(self) -> None:
        self._answer()
        if self.refuses:
            raise EngineError("docker 20 did not do it: no")

    def _answer(self) -> None:
        if self.away:
            raise EngineError("no engine answers")


class FakeLog(Iterator[str]):
    """A log that is at its end."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = iter(lines)

    def __next__(self) -> str:
        return next(self._lines)

    def close(self) -> None:
        self._lines = iter(())


@dataclass
class FakeSubject:
    """What is watched; `ours` is whether acting() lets."""

    what: Target
    name: str = NAME
    ours: bool = True

    def target(self) -> Target:
        return self.what

    @contextmanager
    def acting(self) -> Iterator[bool]:
        yield self.ours


class Scene:
    """A watchdog of a container that runs, whose server answers and has done so for a while."""

    def __init__(self, server: FakeServer, monkeypatch: pytest.MonkeyPatch, limits: Limits | None = None) -> None:
        self.server = server
        self.container = FakeContainer(ContainerState(NAME, "running", started_at=time.time()))
        monkeypatch.setattr(looking, "Containers", lambda _host: cast(Containers, self.container))
        self.subject = FakeSubject(Target(NAME, Api(server.api.base_url, "m")))
        self.now = 0.0
        self.meters = Meters(NAME)
        self.cleared = 0
        self.answers(True)
        self.limits = limits or Limits()
        self.watch = self.fresh()

    def fresh(self) -> Watch:
        """A watchdog that begins."""
        engine = Engine(None)
        self.watch = Watch(
            self.subject, engine, self.limits, self.meters, self._clear, Output(), lambda: self.now
        )
        return self.watch

    def answers(self, tokens: bool, figure: int = 0) -> None:
        """What the server answers from now on: tokens or none, and always that it is healthy."""
        self.server.answers["/health"] = (200, b"")
        self.server.answers["/metrics"] = (200, FIGURES.format(figure).encode())
        self.server.answers["/v1/completions"] = (200, TOKEN) if tokens else (500, b"no")

    def steps(self, seconds: float) -> list[str]:
        """What is done in so many seconds, a look every ten; without looks and questions."""
        acts = []
        for _ in range(int(seconds / 10)):
            self.now += 10
            acts.append(self.watch.step())
        return [act for act in acts if act not in ("wait", "canary")]

    def shown(self) -> dict[str, float]:
        """The metrics that are not 0, by name and labels but the server's."""
        return {
            " ".join([sample.name, *(value for name, value in sample.labels.items() if name != "server")]): sample.value
            for family in self.meters.registry.collect()
            for sample in family.samples
            if sample.value and not sample.name.endswith("_created")
        }

    def _clear(self) -> None:
        self.cleared += 1
