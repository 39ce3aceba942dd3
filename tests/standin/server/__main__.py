"""`vllm serve MODEL ...` as the stand-in does it: python -m tests.standin.server serve MODEL --port=8000."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from tests.standin.server import arguments, log, startup
from tests.standin.server.api import Server
from tests.standin.server.engine import Engine


def main(words: Sequence[str]) -> int:
    """Starts and serves until SIGTERM; returns the exit status."""
    # The first process of a container gets no signal that it has no handler for.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    if words[:1] != ["serve"]:
        print(f"standin: expected serve, found {list(words)}", file=sys.stderr)
        return 2
    given = arguments.parse(words[1:])
    try:
        startup.start(given)
    except startup.EndError as error:
        return error.status
    except ValueError as error:
        print(f"standin: {error}", file=sys.stderr)
        return 2
    while given.headless:
        time.sleep(1)
    try:
        server = Server(Engine(given))
    except OSError as error:
        print(f"OSError: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 1
    for line in ("Started server process [1]", "Waiting for application startup.", "Application startup complete."):
        log.raw(f"(APIServer pid={os.getpid()}) INFO:     {line}")
    server.serve_forever()
    return 0


def _leave(_signal: int, _frame: FrameType | None) -> None:
    log.raw(f"(APIServer pid={os.getpid()}) INFO:     Shutting down")
    sys.stderr.flush()
    # Threads that hang must not keep it.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
