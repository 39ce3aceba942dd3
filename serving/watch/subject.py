"""What is watched: a server that `moet serve up` started, or any container by its name."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serving.generations import store
from serving.generations.generation import Generation
from serving.generations.server import Operation, Server
from serving.probe.api import Api
from serving.profiles import load
from tools.cli.errors import UserError
from tools.files import lock


@dataclass(frozen=True)
class Target:
    """What is to be looked at now.

    Attributes:
        container: its name.
        api: of the server, without the key, which its container has.
        wanted: whether it is to be served.
        operation: the command that is at it, or was interrupted, in words; "" for none.
        generation: of the server; None for a container that no `up` made.
        deadline: seconds from its start in which it must be ready; None where no profile says.
    """

    container: str
    api: Api
    wanted: bool = True
    operation: str = ""
    generation: Generation | None = None
    deadline: float | None = None


class Subject(Protocol):
    """What is watched."""

    @property
    def name(self) -> str:
        """What its state folder is called by."""

    def target(self) -> Target:
        """What is to be looked at now. Raises UserError."""

    @contextmanager
    def acting(self) -> Iterator[bool]:
        """Keeps others from changing the server; yields whether it is still as target() last had it."""


class ServerSubject:
    """A server with generations, as its state has it at each look.

    Args:
        name: of the server.
        root: source tree whose profiles are used; None for those that came with this.
        deadline: of a start, in seconds; None for the profile's.
    """

    def __init__(self, name: str, root: Path | None, deadline: float | None = None) -> None:
        self.name = name
        self._root = root
        self._deadline = deadline
        self._server: Server | None = None

    def target(self) -> Target:
        """What the state says. Raises UserError where it has no generation, or no profile of its line is known."""
        self._server = server = store.read(self.name)
        generation = server.current
        operation = server.operation
        if generation is None:
            if operation is None:
                raise UserError(f"{self.name}: nothing was served yet: `moet serve up` starts it, then watch it")
            generation = server.generations[-1]
        launch = generation.launch
        return Target(
            container=self.name,
            api=Api.of(launch, None),
            wanted=not server.stopped,
            operation="" if operation is None else _words(self.name, operation),
            generation=generation,
            deadline=self._deadline or load.load(launch.line, self._root).start.deadline,
        )

    @contextmanager
    def acting(self) -> Iterator[bool]:
        """Holds the server's lock, as commands do; yields False where one of them has it, or changed the state."""
        with ExitStack() as held:
            try:
                held.enter_context(lock.exclusive(store.lock_path(self.name)))
            except UserError:
                yield False
                return
            yield store.read(self.name) == self._server


class ContainerSubject:
    """A container that something else made: Compose, systemd, a person.

    Args:
        container: its name.
        base_url: where its port is reached.
        deadline: of a start, in seconds; None for the usual one.
    """

    def __init__(self, container: str, base_url: str, deadline: float | None = None) -> None:
        self.name = container
        self._target = Target(container, Api(base_url, ""), deadline=deadline)

    def target(self) -> Target:
        """The container."""
        return self._target

    @contextmanager
    def acting(self) -> Iterator[bool]:
        """Yields True: nobody else is known."""
        yield True


def _words(name: str, operation: Operation) -> str:
    what = f"to generation {operation.target}" if operation.target else "to no server"
    how = "at work" if store.held(name) else "interrupted: `moet serve up` ends it, or goes back"
    return f"{what}, {operation.phase}, {how}"
