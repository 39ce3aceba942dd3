"""What a watchdog leaves on disk, for people and for the next one: watch.json in the server's state folder."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast

from images.manifest import model
from serving.generations import place
from serving.watch.machine import Memory, Phase, Reason
from tools.cli.errors import UserError
from tools.files import atomic

Schema = Literal["moet.watch.v1"]
SCHEMA: Schema = "moet.watch.v1"


@dataclass(frozen=True)
class Record:
    """The file. Times are UTC in words, but `starts`: seconds since the epoch.

    Attributes:
        server: its name.
        phase: machine.Phase.
        since: since when.
        starts: when the watchdog started the server, as far as it counts.
        why: what is to be known of the phase, in one line; "" where nothing is.
        reason: of the last failure, machine.Reason.
        stopped: the run that was ended by hand, and is left alone.
        generation: that is watched.
        log: file of the last failure.
    """

    schema: Schema
    server: str
    phase: str
    since: str
    starts: tuple[float, ...]
    why: str
    reason: str | None = None
    stopped: str | None = None
    generation: int | None = None
    log: str | None = None

    @classmethod
    def read(cls, name: str) -> Self | None:
        """The record of a server; None where it was never watched. Raises UserError where it cannot be read."""
        where = path(name)
        try:
            return model.decode(cls, model.loads(where.read_bytes()))
        except FileNotFoundError:
            return None
        except model.DataError as error:
            raise UserError(f"{where}: is no record of moet's: {error}; remove it, nothing else needs it") from None

    def write(self) -> None:
        """Puts the record in place of the file. Raises OSError."""
        where = path(self.server)
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write(where, model.dumps(self))

    def memory(self, now: float) -> Memory:
        """What a new watchdog remembers at the time `now` of its clock. After giving up, it begins anew."""
        if self.phase == "gave up":
            return Memory()
        ages = (max(0.0, time.time() - at) for at in self.starts)
        return Memory(
            reason=cast(Reason | None, self.reason), stopped=self.stopped, starts=tuple(now - age for age in ages)
        )


def path(name: str) -> Path:
    """The file of a server."""
    return place.folder(name) / "watch.json"


def of(name: str, memory: Memory, now: float, since: str, why: str, generation: int | None, log: str | None) -> Record:
    """The record of what a watchdog remembers at the time `now` of its clock."""
    phase: Phase = memory.phase
    starts = tuple(round(time.time() - (now - at), 3) for at in memory.starts)
    return Record(SCHEMA, name, phase, since, starts, why, memory.reason, memory.stopped, generation, log)
