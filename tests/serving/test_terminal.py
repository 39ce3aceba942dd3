"""At a terminal: Ctrl-C at the question and while it waits, answers, and terminals without colour."""

import re
import signal

import pytest

from tests.release.toy import LINE
from tests.serving.operator import FIRST, OTHER, Operator

_QUESTION = "generation 1 runs: stop it and start generation 2"
_ESCAPE = re.compile(r"\x1b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def test_answers(operator: Operator) -> None:
    assert operator.run("up", LINE, FIRST).status == 0
    before = operator.server
    commands = (("up", LINE, OTHER), ("switch", "VLLM_MOET_NATIVE_NEXT_N=1"))
    for typed, status in (("\x03", 130), ("n\n", 1), ("\n", 1), ("\x04", 1)):
        for words in commands:
            terminal = operator.at_terminal(*words)
            terminal.expect(_QUESTION)
            terminal.send(typed)
            assert terminal.end() == status, terminal.shown
            last = "interrupted" if status == 130 else "nothing was changed"
            assert last in terminal.shown.splitlines()[-1], terminal.shown
    assert operator.server == before
    operator.serves(1)
    terminal = operator.at_terminal(*commands[0])
    terminal.expect(_QUESTION)
    terminal.send("y\n")
    assert terminal.end() == 0, terminal.shown
    operator.serves(2)


def test_interrupted_while_it_waits(operator: Operator) -> None:
    """It goes back."""
    assert operator.run("up", LINE, FIRST).status == 0
    operator.host.behave(**{"for": {"--gpu-memory-utilization=0.92": {"hang_at": "weights"}}})
    terminal = operator.at_terminal("up", LINE, OTHER, "--yes")
    operator.until(operator.starting)
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert "generation 1 serves again" in terminal.shown.splitlines()[-1]
    operator.serves(1)


def test_interrupted_while_it_goes_back(operator: Operator) -> None:
    """It leaves at once, and the next command goes on with it."""
    assert operator.run("up", LINE, FIRST).status == 0
    operator.host.behave(hang_at="weights")
    terminal = operator.at_terminal("up", LINE, OTHER, "--yes")
    operator.until(operator.starting)
    terminal.interrupt()
    operator.until(lambda: operator.phase == "returning" and operator.containers() == {LINE: "running"})
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert "`moet serve up` goes on" in terminal.shown
    operator.host.behave()
    assert operator.run("up").status == 0
    operator.serves(1)


def test_interrupted_on_a_first_up(operator: Operator) -> None:
    operator.host.behave(hang_at="weights")
    terminal = operator.at_terminal("up", LINE, OTHER)
    operator.until(operator.starting)
    terminal.interrupt()
    assert terminal.end() == 130, terminal.shown
    assert operator.containers() == {} and operator.server.operation is None


def test_terminated(operator: Operator) -> None:
    assert operator.run("up", LINE, FIRST).status == 0
    operator.host.behave(hang_at="weights")
    running = operator.begin("up", LINE, OTHER)
    operator.until(operator.starting)
    running.send_signal(signal.SIGTERM)
    outcome = operator.wait(running)
    assert outcome.status == 143 and outcome.last == "moet serve up: terminated", outcome
    operator.host.behave()
    assert operator.run("up").status == 0
    number = operator.server.running
    assert number is not None
    operator.serves(number)


@pytest.mark.parametrize(
    ("environment", "pattern"), [({"TERM": "dumb"}, _ESCAPE), ({"NO_COLOR": "1"}, _COLOUR)], ids=["dumb", "no colour"]
)
def test_without_colour(operator: Operator, environment: dict[str, str], pattern: "re.Pattern[str]") -> None:
    operator.host.behave(phases={"weights": 1})
    for words in (("up", LINE, OTHER), ("status",), ("generations",), ("down",)):
        terminal = operator.at_terminal(*words, **environment)
        assert terminal.end() == 0, terminal.shown
        assert terminal.shown and not pattern.search(terminal.shown), terminal.shown
    terminal = operator.at_terminal("up", "no-such", **environment)
    assert terminal.end() == 1 and not pattern.search(terminal.shown), terminal.shown
