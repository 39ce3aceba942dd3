"""A server's state on disk: one file, replaced in one stroke, by one process at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from images.manifest import model
from serving.generations import place
from serving.generations.server import SCHEMA, Server
from tools.cli.errors import UserError
from tools.files import atomic, lock

_WAIT_SECONDS = 10


def path(name: str) -> Path:
    """The file."""
    return place.folder(name) / "state.json"


def lock_path(name: str) -> Path:
    """The lock file that whoever changes the server holds: commands, and the watchdog while it restarts."""
    return place.folder(name) / "lock"


def read(name: str) -> Server:
    """The state of a server, an empty one where nothing is recorded.

    Raises UserError where the file is of a newer schema, or is no state.
    """
    where = path(name)
    try:
        data = where.read_bytes()
    except FileNotFoundError:
        return Server(SCHEMA, name)
    try:
        return Server.decode(data, name)
    except UserError as error:
        raise UserError(f"{where}: {error}; use a newer moet, nothing was changed") from None
    except model.DataError as error:
        raise UserError(
            f"{where}: is no state of moet's: {error}; move it away, and `moet serve up` begins with generation 1"
        ) from None


def write(server: Server) -> None:
    """Puts a state in place of the file; call it under locked(). Raises OSError, and then leaves the old file."""
    where = path(server.name)
    # What a person passes to docker run may be secret.
    where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(where, model.dumps(server))


def only() -> str:
    """The name of this user's only server. Raises UserError where there is none, or are several."""
    names = place.names()
    if not names:
        raise UserError("no server was started here yet: `moet serve up PROFILE` starts one")
    if len(names) > 1:
        raise UserError(f"there are several servers: name one of {', '.join(names)} with --server NAME")
    return names[0]


def named(name: str) -> str:
    """A server's name as a person gave it. Raises UserError where this user's state has no such server."""
    names = place.names()
    if name not in names:
        raise UserError(f"{name!r} is no server of this user's; there are {', '.join(names) or 'none yet'}")
    return name


@contextmanager
def locked(name: str, waiting: Callable[[str], None]) -> Iterator[None]:
    """Keeps others from changing a server; `waiting` is told when another is at it.

    Raises UserError that names the other one when that goes on for more than some seconds.
    """
    place.folder(name).mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock.exclusive(lock_path(name), _WAIT_SECONDS, waiting):
        yield


def held(name: str) -> bool:
    """Whether a process holds a server's lock."""
    if not lock_path(name).exists():
        return False
    try:
        with lock.exclusive(lock_path(name)):
            return False
    except UserError:
        return True
