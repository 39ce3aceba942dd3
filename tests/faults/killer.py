"""Runs a Python program and kills it, children and all, at the N-th thing that it does to the world.

The interpreter's audit events are counted: a file opened for writing, made, renamed or removed, a connection, a piece
of a request sent, a program started. So every place where a program can be interrupted with some effect has a number:

    python -m tests.faults.killer --at 12 -m tools.moet.main release publish ...

For tests, `events` runs the program to its end and lists what it did, and `run` kills it at one of these. Programs that
wait for others do another number of things each time; with --only just those are counted that match a pattern:

    python -m tests.faults.killer --only 'rename .*state.json' --at 2 --later 1 -m tools.moet.main serve up toy
"""

import argparse
import contextlib
import itertools
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EVENTS = {
    "fcntl.flock",
    "http.client.send",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
    "socket.connect",
    "subprocess.Popen",
}


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `killed`: at the event asked for; else it ended by itself with `status`."""

    killed: bool
    status: int
    output: str
    errors: str


def run(
    at: int,
    module: str,
    arguments: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    only: str = "",
    later: int = 0,
) -> Outcome:
    """Runs `python -m module arguments` in `folder` and kills it just before its `at`-th event (1-based; 0: never).

    `environment` is added to this process's. `log` gets a line for each event. `only` is a regular expression: events
    are counted whose line it finds. It is killed `later` events of any kind after that one.
    """
    command = [sys.executable, "-m", "tests.faults.killer", "--at", str(at), "--only", only, "--later", str(later)]
    command += [*(["--log", str(log)] if log else []), "-m", module, *arguments]
    # Under Bazel the path is put together at run time.
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **path, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    return Outcome(done.returncode == -signal.SIGKILL, done.returncode, done.stdout, done.stderr)


def events(
    module: str,
    arguments: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Runs the program to its end, which must be a good one, and returns its events, in order.

    Raises AssertionError with what the program said where it failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        log = Path(temporary, "events")
        outcome = run(0, module, arguments, folder, environment, log)
        assert outcome.status == 0, outcome.errors
        return log.read_text().splitlines()


def spread(count: int, points: int) -> Iterator[int]:
    """At most `points` of the events 1 to `count`, evenly spread, the first and the last among them."""
    number = min(points, count)
    yield from (1 + round(index * (count - 1) / max(1, number - 1)) for index in range(number))


def _told(event: str, arguments: tuple[Any, ...]) -> str | None:
    """What an audit event is called in the log; None where it changes nothing."""
    if event == "open":
        path, mode, flags = arguments
        writes = any(mark in mode for mark in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITES)
        return f"open {path}" if writes and path != os.devnull else None
    if event == "http.client.send":
        data = arguments[1]
        line = bytes(data[:200]).split(b"\r\n", 1)[0] if isinstance(data, bytes) else b""
        return f"send {line.decode('ascii', 'replace') if line.endswith(b'HTTP/1.1') else 'body'}"
    if event in _EVENTS:
        shown = arguments[1] if event in ("socket.connect", "subprocess.Popen") else arguments[0]
        return f"{event} {shown}"
    return None


def _watch(at: int, only: str, later: int, log: Path | None) -> None:
    numbers, pattern = itertools.count(1), re.compile(only)
    left: int | None = None
    stream = log.open("w", buffering=1) if log else None

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if (event != "open" and event not in _EVENTS) or (told := _told(event, arguments)) is None:
            return
        nonlocal left
        line = " ".join(told.split())
        if stream:
            stream.write(line + "\n")
        if left is not None:
            left -= 1
        elif pattern.search(line) and next(numbers) == at:
            left = later
        if left == 0:
            os.killpg(0, signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> None:
    """Command line; does not return from the program that it runs."""
    parser = argparse.ArgumentParser(prog="killer", description=__doc__)
    parser.add_argument("--at", type=int, required=True, help="number of the event to die at; 0: none")
    parser.add_argument("--only", default="", help="count events whose line this regular expression finds")
    parser.add_argument("--later", type=int, default=0, help="die so many events after that one")
    parser.add_argument("--log", type=Path, help="file that gets a line for each event")
    parser.add_argument("-m", dest="module", required=True, help="the module to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    with contextlib.suppress(PermissionError):
        # A group of its own, so that what is killed is this program and its children.
        os.setpgid(0, 0)
    sys.argv = [options.module, *options.arguments]
    _watch(options.at, options.only, options.later, options.log)
    runpy.run_module(options.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
