"""moet is killed (kill -9) at each phase of an operation; what is left can be read, and the next command settles it."""

from collections.abc import Sequence

from tests.faults import killer
from tests.release.toy import LINE, moet
from tests.serving.operator import FIRST, OTHER, Operator

# A new journal is put in place.
_JOURNAL = r"^os\.rename \S*/\.state\.json\."
_EITHER = (FIRST, OTHER)


def flag(setting: str) -> str:
    """The argument of vllm serve that FIRST or OTHER makes."""
    return f"--gpu-memory-utilization={setting.rpartition('=')[2]}"


def served(operator: Operator) -> None:
    """Two generations that differ, the second one served."""
    for number, util in enumerate(_EITHER, 1):
        outcome = operator.run("up", LINE, util)
        assert outcome.status == 0, outcome.errors
        operator.serves(number)


def kill(operator: Operator, words: Sequence[str], write: int, later: int) -> str | None:
    """Kills a command just before its `write`-th journal, or the first thing after it; returns the phase it is in.

    Whatever it was: the state can be read, no generation is lost, at most one container runs, status tells of it.
    """
    before = operator.server
    outcome = killer.run(write, "tools.moet.main", words, only=_JOURNAL, later=later)
    assert outcome.killed, (write, later, outcome)
    server = operator.server
    assert server.generations[: len(before.generations)] == before.generations
    assert list(operator.containers().values()).count("running") <= 1
    status = operator.run("status")
    assert ("interrupted" in status.output + status.errors) == (server.operation is not None), status
    return operator.phase


def settle(operator: Operator, words: Sequence[str]) -> None:
    """The next command works; then one generation is served, alone."""
    status, _, errors = moet(*words)
    assert status == 0, errors
    number = operator.server.running
    assert number is not None
    operator.serves(number)


def test_at_each_phase_of_up(operator: Operator) -> None:
    served(operator)
    points = {
        (1, 0): None,
        (1, 1): "creating",
        (2, 0): "creating",
        (2, 1): "stopping",
        (3, 0): "stopping",
        (3, 1): "starting",
        (4, 0): "starting",
        (4, 1): "cleaning",
        (5, 0): "cleaning",
    }
    for turn, ((write, later), phase) in enumerate(points.items()):
        words = operator.host.serve("up", LINE, _EITHER[turn % 2])
        assert kill(operator, words, write, later) == phase, (write, later)
        settle(operator, words)
        current = operator.server.current
        assert current and flag(_EITHER[turn % 2]) in current.launch.arguments


def test_at_each_phase_of_rollback(operator: Operator) -> None:
    served(operator)
    for write, phase in enumerate(("creating", "stopping", "starting", "cleaning"), 1):
        assert kill(operator, operator.host.serve("rollback"), write, 1) == phase
        settle(operator, operator.host.serve("up"))


def test_while_it_goes_back(operator: Operator) -> None:
    served(operator)
    operator.host.behave(**{"for": {flag(FIRST): {"fail_at": {"phase": "weights"}}}})
    for number, (write, later) in enumerate([(4, 1), (5, 0)], 3):
        assert kill(operator, operator.host.serve("up", LINE, FIRST), write, later) == "returning"
        settle(operator, operator.host.serve("up"))
        server = operator.server
        assert server.running == 2 and server.generation(number).outcome == "failed"
        assert server.failure and "was told to fail here" in server.failure.why


def test_while_caches_are_filled(operator: Operator) -> None:
    served(operator)
    for number, (write, later) in enumerate([(3, 1), (4, 0)], 4):
        words = operator.host.serve("up", LINE, "--set=GPU_MEM_UTIL=0.95", f"--set=MAX_NUM_SEQS={number}")
        assert kill(operator, words, write, later) == "tuning"
        settle(operator, words)
        current = operator.server.current
        assert current and f"--max-num-seqs={number}" in current.launch.arguments


def test_of_down(operator: Operator) -> None:
    served(operator)
    assert kill(operator, operator.host.serve("down"), 1, 1) == "removing"
    outcome = operator.run("down")
    assert outcome.status == 0 and operator.server.stopped and operator.containers() == {}, outcome
    settle(operator, operator.host.serve("up"))
    assert operator.server.running == 2
