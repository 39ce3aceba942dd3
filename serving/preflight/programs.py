"""Programs of the host that may hang."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

_SECONDS = 30


@dataclass(frozen=True)
class Done:
    """How a program ended; `error` is what it wrote to stderr, or that it did not end."""

    status: int
    output: str
    error: str


def run(words: Sequence[str], seconds: float = _SECONDS) -> Done:
    """Runs a program with an empty stdin; after `seconds` it is killed, and the status is 124.

    Raises OSError where there is no such program.
    """
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        output, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # It is not waited for: a call that hangs in the driver outlives SIGKILL.
        process.kill()
        return Done(124, "", f"no answer within {seconds:g} s")
    return Done(process.returncode, output.decode(errors="replace"), error.decode(errors="replace"))
