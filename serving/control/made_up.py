"""An engine, a journal and servers made up for tests: in memory, and struck down at any step that a test chooses."""

# ruff: noqa: ARG002

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

from images.engine.errors import EngineError
from images.engine.interface import EngineImage
from images.manifest import model
from serving.containers.state import GONE, ContainerState
from serving.control.fleet import GENERATION, TUNING
from serving.control.parts import Handle, NotReadyError
from serving.generations.generation import Generation, Image
from serving.generations.server import SCHEMA, Server
from serving.launch.launch import Launch
from tools.cli.output import Output

NAME = "toy"

# engine: refuses once; away: answers nothing from then on; full: the disk, once.
Blow = Literal["killed", "interrupted", "engine", "away", "full"]


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more, not even what would tidy up."""


@dataclass
class World:
    """All that outlives a process: the engine's containers, and the state on disk.

    Attributes:
        strike: what happens to the process at the step of that number, counted from 1; None: nothing ever.
        ready: whether a generation becomes ready when it is started; a test's choice.
        empty: whether caches must be filled first.
        refused: a generation that the engine never starts.
        decodes: whether each state that is written is read again, which takes most of the time.
    """

    strike: tuple[int, Blow] | None = None
    ready: dict[int, bool] = field(default_factory=dict)
    empty: bool = False
    refused: int | None = None
    decodes: bool = False
    steps: int = 0
    dead: bool = False
    containers: dict[str, "FakeContainer"] = field(default_factory=dict)
    stored: Server = field(default_factory=lambda: Server(SCHEMA, NAME))
    logs: list[tuple[int, str]] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    def step(self, writes: bool = False) -> None:
        """One step of the process: where a test's blow falls."""
        if self.dead:
            raise KilledError
        self.steps += 1
        if self.strike is None or self.steps < self.strike[0]:
            return
        if self.steps > self.strike[0] and self.strike[1] != "away":
            return
        match self.strike[1]:
            case "killed":
                self.dead = True
                raise KilledError
            case "interrupted":
                raise KeyboardInterrupt
            case "engine" | "away" if not writes:
                raise EngineError("the engine does not answer")
            case "full" if writes:
                raise OSError(28, "No space left on device", "state.json")

    def again(self, strike: tuple[int, Blow] | None = None) -> None:
        """The next process begins."""
        self.strike, self.steps, self.dead = strike, 0, False

    def copy(self) -> "World":
        """Another world that is the same now."""
        made = replace(self, ready=dict(self.ready), logs=list(self.logs), containers={}, numbers=count(self.made + 1))
        for name, one in self.containers.items():
            made.containers[name] = FakeContainer(made, int(name[1:]), one.now)
        return made

    @property
    def made(self) -> int:
        """The number of the newest container."""
        return max((int(name[1:]) for name in self.containers), default=0)

    @property
    def live(self) -> list["FakeContainer"]:
        """The containers that run."""
        return [one for one in self.containers.values() if one.now.running]

    def check(self) -> None:
        """What holds at every moment."""
        assert len(self.live) <= 1, f"two run: {[one.now for one in self.live]}"


class FakeContainer:
    """A container."""

    def __init__(self, world: World, number: int, now: ContainerState) -> None:
        self.id = f"c{number}"
        self.now = now
        self._world = world

    @property
    def generation(self) -> int:
        """The generation that it is of."""
        return int(self.now.labels[GENERATION])

    def state(self) -> ContainerState:
        """What it is doing."""
        self._world.step()
        return self.now

    def start(self) -> None:
        """Starts it."""
        if self.generation == self._world.refused:
            raise EngineError("its port is taken")
        self._change(status="running", started_at=1.0)

    def stop(self, seconds: int) -> None:
        """Stops it."""
        assert seconds > 0
        self._change(status="exited", exit_code=0)

    def remove(self) -> None:
        """Removes it, but not what runs or ran while nothing else is known to be ready."""
        stored = self._world.stored
        if stored.operation and stored.operation.aim == "replace" and stored.operation.phase != "cleaning":
            assert self.generation != stored.operation.back, f"removed before the new one was ready: {self.now}"
        self._world.step()
        self.now = GONE
        self._world.containers.pop(self.id, None)
        self._after()

    def rename(self, name: str) -> None:
        """Renames it."""
        assert name not in [one.now.name for one in self._world.containers.values()], f"{name} is taken"
        self._change(name=name)

    def logs(self, tail: int | None = None) -> str:
        """Its output."""
        self._world.step()
        return f"{self.id} said something, {tail}"

    def _change(self, **changes: object) -> None:
        self._world.step()
        if self.now.gone:
            raise EngineError(f"no such container: {self.id}")
        self.now = replace(self.now, **changes)  # type: ignore[arg-type]
        self._after()

    def _after(self) -> None:
        self._world.check()
        # The engine has done it; the process may not live to see that.
        self._world.step()


class FakeEngine:
    """An engine with every image."""

    def __init__(self, world: World) -> None:
        self._world = world

    def image(self, name: str) -> EngineImage | None:
        """An image of that name."""
        return EngineImage(name, (name,), (), {})

    def create(self, launch: Launch, name: str, labels: Mapping[str, str], key: str | None) -> Handle:
        """Makes a container."""
        world = self._world
        world.step()
        assert name not in [one.now.name for one in world.containers.values()], f"{name} is taken"
        state = ContainerState(name, "created", image_id=launch.image, labels=dict(labels))
        made = FakeContainer(world, next(world.numbers), state)
        world.containers[made.id] = made
        made._after()
        return made

    def find(self, name: str) -> Handle | None:
        """The container of that name."""
        self._world.step()
        return next((one for one in self._world.containers.values() if one.now.name == name), None)

    def labelled(self, labels: Mapping[str, str]) -> Sequence[Handle]:
        """The containers with these labels, the newest first."""
        self._world.step()
        found = [one for one in self._world.containers.values() if labels.items() <= one.now.labels.items()]
        return found[::-1]


class FakeStarting:
    """Servers that become ready, or do not, as the world says."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reasons(self, container: Handle, generation: Generation) -> list[str]:
        """Empty caches, if the world says so."""
        self._world.step()
        return ["its caches are empty"] if self._world.empty else []

    def tuned(self, container: Handle, generation: Generation) -> None:
        """The caches are filled now."""
        self._world.step()
        self._world.empty = False

    def clear(self) -> None:
        """Nothing runs."""
        self._world.step()
        assert not self._world.live

    def wait(self, container: Handle, generation: Generation, first: bool) -> None:
        """Ready, or not."""
        self._world.step()
        state = self._world.containers[container.id].now
        assert state.running and (first or TUNING not in state.labels)
        assert state.image_id == generation.image.image_id
        if not self._world.ready.get(generation.number, True):
            raise NotReadyError("crashed while it loaded the weights")
        self._world.step()

    def ready(self, container: Handle, generation: Generation) -> bool:
        """Whether it is."""
        self._world.step()
        return self._world.containers[container.id].now.running and self._world.ready.get(generation.number, True)


class FakeJournal:
    """The state in memory."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self) -> Server:
        """The state."""
        return self._world.stored

    def write(self, server: Server) -> None:
        """Puts a state in its place."""
        self._world.step(writes=True)
        self._world.stored = server
        if self._world.decodes:
            assert Server.decode(model.dumps(server), NAME) == server
        self._world.step(writes=True)

    def save_log(self, generation: int, why: str, text: str) -> str:
        """Keeps an output."""
        self._world.step(writes=True)
        self._world.logs.append((generation, text))
        return f"logs/{generation}"


class Quiet(Output):
    """An Output that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keeps it."""
        self.notes.append(text)


def launch(**changes: object) -> Launch:
    """A launch of the toy server."""
    plain = Launch(
        line="toy",
        title="Toy",
        name=NAME,
        image="toy:vllm0.33.0-r1",
        gpus=("0",),
        network="published",
        bind="127.0.0.1",
        port=8001,
        inner_port=8000,
        binds=(),
        environment={},
        arguments=("serve", "/model", "--kv-cache-dtype=fp8"),
        ulimits={},
        shared_memory_gib=1.0,
        key=None,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def generation(number: int, tuning: bool = False, **changes: object) -> Generation:
    """A generation of the toy server, of an image of its own."""
    image = Image(f"toy:vllm0.33.0-r{number}", f"sha256:{number:064}", base="vllm 0.33.0 4ba787ec9")
    own = launch(image=image.asked)
    plain = Generation(
        number=number,
        at=f"2026-01-01T00:00:{number:02}+00:00",
        who="someone (1000)",
        what="up",
        of=None,
        profile="0" * 64,
        image=image,
        knobs=(),
        launch=own,
        tuning=replace(own, arguments=(*own.arguments, "--gpu-memory-utilization=0.9")) if tuning else None,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def never(_: Launch) -> str | None:
    """No key."""
    return None
