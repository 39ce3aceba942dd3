"""All checks, one after another."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from images.engine.errors import EngineError
from serving.preflight import all_reduce, cards, engine, exposure, memory, model_folder, pcie, places, port, shards
from serving.preflight.all_reduce import Doing
from serving.preflight.host import Docker, Host
from serving.preflight.result import Result, finding, skipped
from serving.preflight.subject import Subject


def preflight(subject: Subject, host: Host, doing: Doing | None = None) -> Iterator[Result]:
    """Looks at a host before a server is started on it, and changes nothing there.

    Where nobody uses the GPUs, a container of the image runs on them for about a minute; `doing` is then entered with
    a line that says so.
    """
    yield from _seen("model", lambda: model_folder.check(subject, host))
    yield from _seen("shards", lambda: shards.check(subject, host))
    yield from memory.check(subject, host)
    opened: Docker | None = None
    try:
        opened = host.docker()
        yield from _asked(subject, opened)
    except EngineError as error:
        yield from engine.unreachable(error)
    try:
        yield from _seen("places", lambda: places.check(subject, host, opened))
        yield from _port(subject, opened)
        yield exposure.check(subject)
        yield from cards.check(subject, host)
        yield from pcie.check(subject, host)
        yield from all_reduce.check(subject, host, opened, doing or _silent)
    finally:
        if opened:
            opened.close()


def _silent(_what: str) -> AbstractContextManager[None]:
    return nullcontext()


def _seen(name: str, check: Callable[[], list[Result]]) -> list[Result]:
    try:
        return check()
    except OSError as error:
        return [skipped(name, f"{error.filename}: {error.strerror} (run it as root to look there)")]


def _asked(subject: Subject, opened: Docker) -> list[Result]:
    try:
        return engine.check(subject, opened)
    except EngineError as error:
        return [finding("engine", str(error), "the server runs in a container", "journalctl -u docker -n 50")]


def _port(subject: Subject, opened: Docker | None) -> list[Result]:
    try:
        return port.check(subject, opened)
    except EngineError:
        return port.check(subject, None)
