"""What going forward and going back have in common: state, containers, and starting one of them."""

from collections.abc import Callable

from images.engine.errors import EngineError
from serving.control.fleet import Fleet, Member
from serving.control.parts import Engine, Handle, Journal, Starting
from serving.generations import saved_logs
from serving.generations.generation import Generation
from serving.generations.server import Phase, Server
from serving.launch.launch import Launch
from tools.cli.output import Output


class Ground:
    """One server, its containers and its journal.

    Args:
        engine: where its containers are.
        starting: when one is ready.
        journal: its state.
        secret: the API key of a launch; raises UserError where it cannot be had.
        out: told what goes on.
    """

    def __init__(
        self,
        engine: Engine,
        starting: Starting,
        journal: Journal,
        secret: Callable[[Launch], str | None],
        out: Output,
    ) -> None:
        self.server: Server = journal.read()
        self.fleet = Fleet(engine, self.server.name)
        self.starting = starting
        self.secret = secret
        self.out = out
        self._journal = journal

    @property
    def target(self) -> Generation:
        """The generation that the operation under way is to serve."""
        return self.server.generation(self.server.under_way.target or 0)

    def write(self, server: Server) -> None:
        """Puts a state in place of the old one. Raises OSError."""
        self._journal.write(server)
        self.server = server

    def phase(self, phase: Phase) -> None:
        """Notes that a phase begins, before anything of it is done. Raises OSError."""
        self.write(self.server.at_phase(phase))

    def start(self, container: Handle, generation: Generation, first: bool) -> None:
        """Starts a container, after all others are stopped, and waits for it. Raises NotReadyError, EngineError."""
        for member in self.fleet.members():
            if member.live and member.container.id != container.id:
                self.out.note(f"stopping generation {member.generation}")
                self.fleet.stop(member)
        self.starting.clear()
        container.start()
        self.wait(container, generation, first)

    def wait(self, container: Handle, generation: Generation, first: bool) -> None:
        """Waits until a started container is ready; `first`: it fills the caches. Raises NotReadyError, EngineError."""
        what = "filling the caches of" if first else "starting"
        self.out.note(f"{what} generation {generation.number}: {generation.image.name}")
        self.starting.wait(container, generation, first)
        if first:
            self.starting.tuned(container, generation)

    def remove(self, which: Callable[[Member], bool]) -> None:
        """Stops and removes the containers that `which` chooses. Raises EngineError."""
        for member in self.fleet.members():
            if which(member):
                self.fleet.remove(member)

    def save(self, member: Member | None, why: str) -> str | None:
        """Keeps a container's last output, as far as that is possible; returns the file."""
        if member is None or member.state.started_at is None:
            return None
        try:
            text = member.container.logs(tail=saved_logs.LINES)
            path = self._journal.save_log(member.generation, why, text)
        except (EngineError, OSError) as error:
            self.out.note(f"the output of generation {member.generation} could not be kept: {words(error)}")
            return None
        self.out.note(f"its last output is in {path}")
        return path


def words(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError):
        return (f"{error.filename}: " if error.filename else "") + (error.strerror or str(error))
    return str(error) or type(error).__name__
