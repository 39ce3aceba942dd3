"""One server's generations, which of them is served, and the operation that is under way: state, and its changes.

Nothing here reads or writes files; store.py does.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from images.manifest import model
from serving.generations.generation import Generation, Outcome
from tools.cli.errors import UserError

Schema = Literal["moet.server.v1"]
SCHEMA: Schema = "moet.server.v1"

# A generation's place, as people see it.
Place = Literal["staged", "running", "stopped", "previous", "superseded", "failed"]
Aim = Literal["replace", "start", "down"]
# In the order in which they come; `returning` follows any of the first four where something goes wrong.
#   creating:  the new container is made; what ran before runs on.
#   stopping:  what ran before is given another name.
#   tuning:    what ran before is stopped, and a container of its own fills the caches.
#   starting:  what runs is stopped, and the new container is started and waited for.
#   returning: the new container is removed; what ran before is started again.
#   cleaning:  the new generation is the running one; what is left of others is removed.
#   removing:  of `down`: all containers are removed.
Phase = Literal["creating", "stopping", "tuning", "starting", "returning", "cleaning", "removing"]


@dataclass(frozen=True)
class Operation:
    """The journal of what is under way; one that nobody is at was interrupted, and the next command settles it.

    Attributes:
        aim: a new generation in place of `back`; the same one again (start); or no server (down).
        target: the generation to be served; None for down.
        back: the generation that ran before, and that is returned to; None where none did.
        phase: how far it came, written before anything of the phase is done.
        at: when it began, UTC.
        why: why it goes back.
        log: file with the last output of what failed.
    """

    aim: Aim
    target: int | None
    back: int | None
    phase: Phase
    at: str
    why: str | None = None
    log: str | None = None


@dataclass(frozen=True)
class Failure:
    """The last start that failed: which generation, when (UTC), why, and the file with its last output."""

    at: str
    generation: int
    why: str
    log: str | None = None


@dataclass(frozen=True)
class Server:
    """A server of this host.

    Attributes:
        name: of the server and its container.
        generations: oldest first.
        running: the generation that is served, or was before it was stopped or went down by itself.
        previous: the one that was served before it.
        stopped: whether it was stopped on purpose (down).
        operation: what is under way.
        failure: the last start that failed; None once one succeeded.
    """

    schema: Schema
    name: str
    generations: tuple[Generation, ...] = ()
    running: int | None = None
    previous: int | None = None
    stopped: bool = False
    operation: Operation | None = None
    failure: Failure | None = None

    @classmethod
    def decode(cls, data: bytes, name: str) -> Self:
        """The state of the server `name` from its file. Raises model.DataError; UserError for a newer schema."""
        value = model.loads(data)
        schema = str(value.get("schema")) if isinstance(value, dict) else ""
        kind, _, version = schema.rpartition(".v")
        if kind == "moet.server" and version.isdecimal() and int(version) > 1:
            raise UserError(f"schema {schema} is newer than {SCHEMA}, which this moet knows")
        found = model.decode(cls, value)
        found._check(name)
        return found

    def _check(self, name: str) -> None:
        if self.name != name:
            raise model.DataError(f"name: expected {name!r}, found {self.name!r}")
        if [one.number for one in self.generations] != list(range(1, len(self.generations) + 1)):
            raise model.DataError("generations: expected numbers from 1 without a gap")
        operation = self.operation
        mentioned = [self.running, self.previous, *((operation.target, operation.back) if operation else ())]
        for number in mentioned:
            if number is not None and not 1 <= number <= len(self.generations):
                raise model.DataError(f"generation {number}: is mentioned and not there")

    @property
    def next_number(self) -> int:
        """The number that the next generation gets."""
        return len(self.generations) + 1

    @property
    def current(self) -> Generation | None:
        """The generation that is served, or was last."""
        return None if self.running is None else self.generation(self.running)

    def generation(self, number: int) -> Generation:
        """A generation. Raises UserError, with the numbers there are, where there is none."""
        if not 1 <= number <= len(self.generations):
            there = f"there are 1 to {len(self.generations)}" if self.generations else "there are none yet"
            raise UserError(f"{self.name} has no generation {number}; {there}")
        return self.generations[number - 1]

    def place(self, generation: Generation) -> Place:
        """Where a generation stands."""
        if generation.number == self.running:
            return "stopped" if self.stopped else "running"
        if generation.outcome != "served":
            return "staged" if generation.outcome == "staged" else "failed"
        return "previous" if generation.number == self.previous else "superseded"

    def staged(self, generation: Generation, at: str) -> Self:
        """With a new generation, which is to replace what runs."""
        back = None if self.stopped else self.running
        operation = Operation("replace", generation.number, back, "creating", at)
        return replace(self, generations=(*self.generations, generation), operation=operation)

    def starting_again(self, at: str) -> Self:
        """With the running generation to be started once more, in a container of its own."""
        return replace(self, operation=Operation("start", self.running, None, "creating", at))

    def going_down(self, at: str) -> Self:
        """With the server to be stopped; an operation that was interrupted is given up."""
        found = self
        if self.operation and self.operation.target and self.operation.phase != "cleaning":
            found = self.failed("interrupted, then stopped", None, at)
        return replace(found, operation=Operation("down", None, found.running, "removing", at))

    def at_phase(self, phase: Phase, why: str | None = None, log: str | None = None) -> Self:
        """With the operation in another phase."""
        before = self.under_way
        return replace(self, operation=replace(before, phase=phase, why=why or before.why, log=log or before.log))

    def served(self) -> Self:
        """With the operation's target as the running generation; what is left of others is to be removed."""
        target = self._target
        previous = self.running if self.running not in (None, target) else self.previous
        found = self._marked(target, "served", None, None)
        return replace(found.at_phase("cleaning"), running=target, previous=previous, stopped=False, failure=None)

    def failed(self, why: str, log: str | None, at: str) -> Self:
        """With the operation over and its target given up; what ran before is what runs."""
        target = self._target
        found = self
        if self.generation(target).outcome == "staged":
            found = self._marked(target, "failed", why, log)
        return replace(found, operation=None, failure=Failure(at, target, why, log))

    def stopped_for_good(self) -> Self:
        """With the operation over and no server."""
        return replace(self, operation=None, stopped=True)

    def settled(self) -> Self:
        """With the operation over."""
        return replace(self, operation=None)

    @property
    def under_way(self) -> Operation:
        """The operation. Raises ValueError where there is none."""
        if self.operation is None:
            raise ValueError("no operation is under way")
        return self.operation

    @property
    def _target(self) -> int:
        if self.under_way.target is None:
            raise ValueError("the operation has no target")
        return self.under_way.target

    def _marked(self, number: int, outcome: Outcome, why: str | None, log: str | None) -> Self:
        changed = replace(self.generation(number), outcome=outcome, why=why, log=log)
        return replace(
            self, generations=tuple(changed if one.number == number else one for one in self.generations)
        )
