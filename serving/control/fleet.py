"""The containers of one server: found by their labels, and never two of them running."""

from dataclasses import dataclass, replace

from images.engine.errors import EngineError
from serving.containers.state import ContainerState
from serving.control.parts import Engine, Handle
from serving.generations.generation import Generation
from tools.cli.errors import UserError

SERVER = "org.moet.server"
GENERATION = "org.moet.generation"
TUNING = "org.moet.tuning"
_STOP_SECONDS = 30
_LIVE = ("running", "restarting", "paused")


@dataclass(frozen=True)
class Member:
    """A container of the server as it was found: the generation that it is of, and whether it only fills caches."""

    container: Handle
    state: ContainerState
    generation: int
    tuning: bool

    @property
    def live(self) -> bool:
        """Whether it has a process."""
        return self.state.status in _LIVE


class Fleet:
    """The containers of the server `name`.

    Of them, `name` is the one that serves or is being started, NAME.new one that was made and never started,
    NAME.previous what ran before, NAME.tuning one that fills caches. All methods raise EngineError.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    def members(self) -> list[Member]:
        """All containers of the server."""
        found = []
        for one in self._engine.labelled({SERVER: self.name}):
            state = one.state()
            number = state.labels.get(GENERATION, "")
            if not state.gone and number.isdecimal():
                found.append(Member(one, state, int(number), TUNING in state.labels))
        return found

    def serving(self) -> Member | None:
        """The one that has the server's name."""
        return next((one for one in self.members() if one.state.name == self.name), None)

    def of(self, generation: int) -> Member | None:
        """The container of a generation, but for tuning; the one with the server's name where there are several."""
        found = [one for one in self.members() if one.generation == generation and not one.tuning]
        return min(found, key=lambda one: one.state.name != self.name, default=None)

    def refuse_strangers(self, running: int | None) -> None:
        """Raises UserError where a container is in the way that is not of the generation `running`."""
        members = {one.container.id: one for one in self.members()}
        for one in members.values():
            if one.generation != running:
                raise UserError(
                    f"the container {one.state.name} is of generation {one.generation} of {self.name}, which the state"
                    f" does not have as running: docker rm -f {one.state.name}, or put the state back"
                )
        for name in (self.name, *(f"{self.name}.{suffix}" for suffix in ("new", "previous", "tuning"))):
            found = self._engine.find(name)
            if found is not None and found.id not in members:
                raise UserError(
                    f"there is a container {name} that `moet serve up` did not make: docker rm -f {name}, or docker"
                    " rename it"
                )

    def create(self, generation: Generation, suffix: str, key: str | None) -> Handle:
        """Makes the container of a generation as NAME.suffix, which is removed first if it is there.

        Its image is the generation's own id: a tag may have been moved since.
        """
        tuning = suffix == "tuning"
        launch = generation.tuning if tuning and generation.tuning else generation.launch
        name = f"{self.name}.{suffix}"
        for one in self.members():
            if one.state.name == name:
                one.container.remove()
        labels = {SERVER: self.name, GENERATION: str(generation.number), **({TUNING: "1"} if tuning else {})}
        return self._engine.create(replace(launch, image=generation.image.image_id), name, labels, key)

    def stop(self, member: Member) -> None:
        """Stops a container; nothing where it does not run."""
        if member.live:
            member.container.stop(_STOP_SECONDS)

    def remove(self, member: Member) -> None:
        """Stops and removes a container; nothing where it is gone."""
        try:
            self.stop(member)
        except EngineError:
            # It may have gone by itself in the meantime.
            if not member.container.state().gone:
                raise
        member.container.remove()

    def call(self, container: Handle, suffix: str = "") -> None:
        """Gives a container the server's name, or NAME.suffix."""
        name = f"{self.name}.{suffix}" if suffix else self.name
        if container.state().name != name:
            container.rename(name)
