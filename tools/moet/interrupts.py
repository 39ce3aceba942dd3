"""Ctrl-C and SIGTERM as exceptions that end a program in order, and that are not lost."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Until the finalizer that had it is over.
_AGAIN_SECONDS = 0.05


class TerminatedError(BaseException):
    """SIGTERM came."""


@contextmanager
def unwound() -> Iterator[None]:
    """Lets SIGTERM end the block as TerminatedError, as Ctrl-C does as KeyboardInterrupt; neither is lost.

    So worktrees, drafts and locks are given back. Python prints an exception of a finalizer or of a weak reference's
    callback, and goes on: where that is one of the two, its signal is sent once more. Main thread only.
    """
    number_of = {KeyboardInterrupt: signal.SIGINT, TerminatedError: signal.SIGTERM}
    main = threading.main_thread().ident or 0

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise TerminatedError

    def unraisable(given: "sys.UnraisableHookArgs") -> None:
        number = number_of.get(given.exc_type)
        if number is None:
            hook(given)
            return
        again = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (main, number))
        again.daemon = True
        again.start()

    before, hook = signal.signal(signal.SIGTERM, leave), sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)
