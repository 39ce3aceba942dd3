"""The engine stops and comes back: before a change, in the middle of one, and while a generation is served."""

import signal

from tests.release.toy import LINE
from tests.serving.operator import FIRST, OTHER, Operator


def test_no_engine_to_begin_with(operator: Operator) -> None:
    outcome = operator.run("up", LINE, DOCKER_HOST="unix:///nowhere")
    assert outcome.status == 1 and "no engine answers at unix:///nowhere" in outcome.last, outcome
    assert operator.server.generations == () and operator.run("up", LINE, FIRST).status == 0
    operator.serves(1)


def test_restarted_while_a_generation_starts(operator: Operator) -> None:
    """The generation is lost; the command goes back by itself."""
    assert operator.run("up", LINE, FIRST).status == 0
    operator.host.behave(**{"for": {"--gpu-memory-utilization=0.92": {"hang_at": "weights"}}})
    running = operator.begin("up", LINE, OTHER)
    operator.until(operator.starting)
    operator.host.docker.restart()
    outcome = operator.wait(running)
    assert outcome.status == 1 and "generation 1 serves again" in outcome.last, outcome
    operator.serves(1)
    assert operator.server.generation(2).outcome == "failed"


def test_stopped_while_a_generation_starts(operator: Operator) -> None:
    """moet waits for it to come back; where that is given up, the next command goes on when it is there."""
    assert operator.run("up", LINE, FIRST).status == 0
    operator.host.behave(hang_at="weights")
    running = operator.begin("up", LINE, OTHER)
    operator.until(operator.starting)
    operator.host.docker.daemon.stop()
    try:
        running.send_signal(signal.SIGTERM)
        outcome = operator.wait(running)
        assert outcome.status == 143 and operator.server.operation, outcome
        for verb in ("up", "status", "rollback", "down"):
            refused = operator.run(verb)
            assert refused.status == 1 and "no engine answers at" in refused.last, (verb, refused)
    finally:
        operator.host.docker.start()
    operator.host.behave()
    again = operator.run("up")
    assert again.status == 0 and "interrupted" in again.errors, again.errors
    number = operator.server.running
    assert number is not None
    operator.serves(number)


def test_restarted_while_one_is_served(operator: Operator) -> None:
    assert operator.run("up", LINE, FIRST).status == 0
    operator.host.docker.restart()
    assert operator.containers() == {LINE: "exited"}
    status = operator.run("status")
    assert status.status not in (0, 2) and "exited" in status.output, status
    again = operator.run("up")
    assert again.status == 0 and "generation 1 serves again" in again.output, again
    operator.serves(1)
