"""A program at a terminal of its own: what it shows, what is typed, Ctrl-C."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

_SECONDS = 300
_ROWS, _COLUMNS = 30, 120


class Terminal:
    """A program whose stdin, stdout and stderr are one terminal, which it is controlled by."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.shown = ""
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_control,
        )
        os.close(slave)

    def expect(self, text: str) -> None:
        """Waits until the program has shown `text`. Raises AssertionError with all that it showed instead."""
        deadline = time.monotonic() + _SECONDS
        while text not in self.shown:
            assert self._more(deadline), f"expected {text!r}, found {self.shown!r}"

    def send(self, text: str) -> None:
        """Types."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Types Ctrl-C."""
        self.send("\x03")

    def end(self) -> int:
        """Waits for the program's end; its exit status, negative for a signal."""
        deadline = time.monotonic() + _SECONDS
        while self._more(deadline):
            pass
        return self._process.wait(_SECONDS)

    def close(self) -> None:
        """Kills what still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._master)

    def _more(self, deadline: float) -> bool:
        """Takes in what comes; False at the program's end, or at the deadline."""
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        data = b""
        if ready:
            # Linux answers EIO where nobody has the other side open.
            with contextlib.suppress(OSError):
                data = os.read(self._master, 1 << 16)
        self.shown += data.decode(errors="replace")
        return bool(data)


def _control() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
