import os
import pty
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from serving.control import ask
from tools.cli.errors import UserError


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as stdin and stderr; its other side."""
    master, slave = pty.openpty()
    modes = termios.tcgetattr(slave)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    with os.fdopen(slave) as stdin, os.fdopen(os.dup(slave), "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stderr", stderr)
        yield master
    os.close(master)


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_yes_goes_on(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    with terminal(monkeypatch) as other:
        os.write(other, answer.encode())
        ask.confirm("stop it?")
        assert b"stop it? [y/N] " in os.read(other, 100)


@pytest.mark.parametrize("answer", ["\n", "n\n", "yess\n", "\x04"])
def test_anything_else_does_not(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    with terminal(monkeypatch) as other:
        os.write(other, answer.encode())
        with pytest.raises(UserError, match="nothing was changed"):
            ask.confirm("stop it?")


def test_without_a_terminal_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as nothing, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", nothing)
        ask.confirm("stop it?")
    assert capsys.readouterr().err == ""
