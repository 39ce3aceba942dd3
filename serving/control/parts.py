"""What the sequence of a change works with: containers, readiness, a journal. Tests give it others of the same kind."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from images.engine.interface import EngineImage
from serving.containers.state import ContainerState
from serving.generations.generation import Generation
from serving.generations.server import Server
from serving.launch.launch import Launch
from tools.cli.errors import UserError


class NotReadyError(UserError):
    """A server was started and did not become ready; one line says why, and what to do."""


class Handle(Protocol):
    """A container; what each method does is said in serving/containers/container.py."""

    @property
    def id(self) -> str:
        """The engine's own name of it."""

    def state(self) -> ContainerState:
        """What it is doing now."""

    def start(self) -> None:
        """Starts it."""

    def stop(self, seconds: int) -> None:
        """Stops it; kills it after `seconds`."""

    def remove(self) -> None:
        """Kills and removes it."""

    def rename(self, name: str) -> None:
        """Gives it a name that is free."""

    def logs(self, tail: int | None = None) -> str:
        """The end of its output."""


class Engine(Protocol):
    """An engine; what each method does is said in serving/containers/containers.py."""

    def image(self, name: str) -> EngineImage | None:
        """An image."""

    def create(self, launch: Launch, name: str, labels: Mapping[str, str], key: str | None) -> Handle:
        """Makes a container."""

    def find(self, name: str) -> Handle | None:
        """The container of that name."""

    def labelled(self, labels: Mapping[str, str]) -> Sequence[Handle]:
        """The containers with these labels."""


class Starting(Protocol):
    """When a server is ready, and whether its caches must be filled first."""

    def reasons(self, container: Handle, generation: Generation) -> list[str]:
        """Why the caches of a container, which was created and not started, must be filled first; none: they fit."""

    def tuned(self, container: Handle, generation: Generation) -> None:
        """Notes in the caches what they were filled for."""

    def clear(self) -> None:
        """Gives back memory of the host that a server which died still holds. Nothing runs now."""

    def wait(self, container: Handle, generation: Generation, first: bool) -> None:
        """Waits until a started container is ready; `first`: one that fills caches. Raises NotReadyError."""

    def ready(self, container: Handle, generation: Generation) -> bool:
        """Whether a container is ready now."""


class Journal(Protocol):
    """Where the state is kept."""

    def read(self) -> Server:
        """The state. Raises UserError."""

    def write(self, server: Server) -> None:
        """Puts a state in its place. Raises OSError."""

    def save_log(self, generation: int, why: str, text: str) -> str:
        """Keeps a server's last output; returns the file's path. Raises OSError."""
