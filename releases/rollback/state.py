"""Which release of a line is current on this host, and how that came to be.

One file a line, $XDG_STATE_HOME/moet/lines/<line>.json (default ~/.local/state/moet). It is replaced in one stroke,
by one process at a time, and never by a program that cannot read what is there.
"""

import datetime
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from images.manifest import model
from tools.cli.errors import UserError
from tools.files import atomic, lock

SCHEMA: Literal["moet.state.v1"] = "moet.state.v1"
_WAIT_SECONDS = 10

What = Literal["set", "rollback", "forward", "undo"]


@dataclass(frozen=True)
class Place:
    """A release in an engine: `digest` and `image_id` as CHANGELOG.md has them, `engine` docker or podman."""

    tag: str
    digest: str
    image_id: str
    engine: str


@dataclass(frozen=True)
class Change:
    """One change of what is current. `number` counts from 1, `at` is UTC, `before` None where nothing was current."""

    number: int
    what: What
    at: str
    after: Place
    why: str
    before: Place | None = None


@dataclass(frozen=True)
class State:
    """The state of one line; `history` has the oldest change first."""

    schema: Literal["moet.state.v1"]
    line: str
    history: tuple[Change, ...]
    current: Place | None = None

    @classmethod
    def read(cls, line: str) -> Self:
        """The state of `line`, an empty one where nothing is recorded.

        Raises UserError where the file is of a newer schema, or is no state.
        """
        where = path(line)
        try:
            data = where.read_bytes()
        except FileNotFoundError:
            return cls(SCHEMA, line, ())
        try:
            state = cls._decode(data)
            state._check(line)
        except _NewerError as error:
            raise UserError(f"{where}: {error}; use a newer moet, nothing was changed") from None
        except model.DataError as error:
            raise UserError(
                f"{where}: is no state of moet's: {error}; move it away and name the release with --to"
            ) from None
        return state

    def change(self, what: What, after: Place, why: str) -> Self:
        """The state after one more change; nothing is written."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        entry = Change(len(self.history) + 1, what, now, after, why, self.current)
        return replace(self, current=after, history=(*self.history, entry))

    def write(self) -> None:
        """Puts the state in place of the file; call it under locked()."""
        atomic.write(path(self.line), model.dumps(self))

    @classmethod
    def _decode(cls, data: bytes) -> Self:
        value = model.loads(data)
        schema = value.get("schema") if isinstance(value, dict) else None
        name, _, version = str(schema).rpartition(".v")
        if name == "moet.state" and version.isdecimal() and int(version) > 1:
            raise _NewerError(f"schema {schema} is newer than {SCHEMA}, which this moet knows")
        return model.decode(cls, value)

    def _check(self, line: str) -> None:
        if self.line != line:
            raise model.DataError(f"line: expected {line!r}, found {self.line!r}")
        if [change.number for change in self.history] != list(range(1, len(self.history) + 1)):
            raise model.DataError("history: expected changes numbered from 1 without a gap")
        if self.current != (self.history[-1].after if self.history else None):
            raise model.DataError("current: is not what the last change left")


class _NewerError(Exception):
    pass


def path(line: str) -> Path:
    """The file of a line's state."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".local/state"
    return folder / "moet/lines" / f"{line}.json"


@contextmanager
def locked(line: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Keeps other processes from changing the line's state; `waiting` is told when another one does.

    Raises UserError that names it when it goes on for more than some seconds.
    """
    with lock.exclusive(path(line).with_suffix(".lock"), _WAIT_SECONDS, waiting):
        yield
