"""A question at a terminal."""

import sys

from tools.cli.errors import UserError


def confirm(question: str) -> None:
    """Asks whether to go on. Where stdin or stderr is no terminal nobody can be asked, and it goes on.

    Raises UserError for anything but yes, KeyboardInterrupt for Ctrl-C.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was changed")
