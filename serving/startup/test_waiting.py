from collections.abc import Callable

import pytest

from images.engine.errors import EngineError
from serving.probe.api import Api
from serving.probe.ready import Readiness
from serving.profiles.model import Start
from serving.startup import made_up, waiting
from serving.startup.failure import StartFailedError
from serving.startup.log import Log, Logged
from serving.startup.waiting import Started, wait_ready
from tools.cli.output import Output

API = Api("http://127.0.0.1:1", "m")
EXPECTED = Start(1110, 2700)
REFUSED = Readiness(False, "http://127.0.0.1:1/v1/completions: connection refused")


@pytest.fixture
def clock() -> made_up.Clock:
    return made_up.Clock()


@pytest.fixture
def container() -> made_up.Container:
    return made_up.Container()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Readiness]:
    """What the server answers, one after the other, the last one for ever; those with `ok` end the wait."""
    given = [REFUSED]

    def ready(container: made_up.Container, _api: Api, _timeout: float) -> Readiness:
        container.state()
        return given.pop(0) if len(given) > 1 else given[0]

    monkeypatch.setattr(waiting, "ready", ready)
    return given


def wait(
    container: made_up.Container, clock: made_up.Clock, at: dict[float, Callable[[], None]] | None = None
) -> Started:
    """Waits; `at` has what happens after some seconds."""
    events = sorted((at or {}).items())
    begin = clock.now
    logs: list[Log] = []

    class Kept(Log):
        def __init__(self, container: Logged, since: float | None) -> None:
            super().__init__(container, since)
            logs.append(self)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        while events and clock.now - begin >= events[0][0]:
            events.pop(0)[1]()
        settle(container, logs[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "Log", Kept)
        return wait_ready(container, API, EXPECTED, Output(), "dsv41", clock, sleep)


def settle(container: made_up.Container, log: Log) -> None:
    """Lets the thread that reads the log, if there is one, take what is there."""
    for _ in range(10_000):
        if not log._thread.is_alive() or container.lines.taken(0.01):
            return
    raise AssertionError("the log is not read")


def test_ready_once_attested_and_a_token_came(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness], capsys: pytest.CaptureFixture[str]
) -> None:
    steps: dict[float, Callable[[], None]] = {
        10.0 * number: lambda line=line: container.say(line)  # type: ignore[misc]
        for number, line in enumerate(made_up.START)
    }
    steps[200.0] = lambda: answers.append(Readiness(True))
    started = wait(container, clock, steps)
    assert started.readiness.ok and 200 <= started.seconds < 203
    assert list(started.phases) == [name for name in dict.fromkeys(made_up.PHASES) if name != "up"]
    assert 19 <= started.phases["weights"] <= 21
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("dsv41: 0:00 of about 18:30: attest (1 of 11): the entry point holds the image against ")
    assert "dsv41: 0:30 of about 18:30: weights (4 of 11): the checkpoint is read to the GPUs" in said
    assert len(said) == 11 + 1
    assert said[-1].startswith("dsv41: 3:10 of about 18:30: up (11 of 11): the API server listens; last line, 1:00 ago")


def test_container_that_ends_is_the_reason_and_its_last_lines_are_read(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    del answers
    last = made_up.logged("Worker_TP0", "x.py:1", "torch.OutOfMemoryError: CUDA out of memory.", "ERROR")
    lines = [*made_up.START[:11], last]
    with pytest.raises(StartFailedError, match=r"^out of memory after 0:0\d, in phase autotune .*lower GPU_M") as error:
        wait(container, clock, {5.0: lambda: container.end(1, *lines)})
    assert error.value.tail[-1] == lines[-1] and error.value.exit_code == 1


def test_deadline_says_what_was_last_seen(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    del answers
    container.cpu = 12.0
    with pytest.raises(StartFailedError) as error:
        wait(container, clock, {100.0: lambda: container.say(*made_up.START[:4])} | busy(container))
    assert (error.value.reason, error.value.phase.name) == ("deadline", "weights")
    assert EXPECTED.deadline <= error.value.seconds < EXPECTED.deadline + 1
    assert error.value.exit_code is None and error.value.status == 1
    said = str(error.value)
    assert "not ready within 45:00: http://127.0.0.1:1/v1/completions: connection refused" in said
    assert "nothing was logged for 43:" in said and "its last line: Loading model from scratch" in said


def test_what_is_logged_while_a_token_is_asked_for_counts(
    container: made_up.Container, clock: made_up.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ready(container: made_up.Container, _api: Api, seconds: float) -> Readiness:
        container.say(*made_up.START)
        assert container.lines.taken(60)
        clock.sleep(seconds)
        return Readiness(False, "no token")

    monkeypatch.setattr(waiting, "ready", ready)
    monkeypatch.setattr(waiting, "_TOKEN_SECONDS", float(EXPECTED.deadline))
    with pytest.raises(StartFailedError, match=r"^deadline") as error:
        wait(container, clock)
    assert error.value.phase.name == "up" and error.value.tail[-1] == made_up.START[-1]


def busy(container: made_up.Container) -> dict[float, Callable[[], None]]:
    """A processor's time for each minute."""

    def compute() -> None:
        assert container.cpu is not None
        container.cpu += 60

    return {60.0 * minute: compute for minute in range(1, 60)}


def test_start_that_neither_logs_nor_computes_is_hung_before_its_deadline(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness], capsys: pytest.CaptureFixture[str]
) -> None:
    del answers
    container.cpu = 12.0
    with pytest.raises(StartFailedError, match=r"^hung after .*in the last 10:0") as error:
        wait(container, clock, {1.0: lambda: container.say(*made_up.START[:4])})
    assert error.value.seconds < 800
    assert "dsv41: nothing was logged for 5:00" in capsys.readouterr().err


def test_engine_that_does_not_tell_the_time_computed_calls_nothing_hung(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    del answers
    with pytest.raises(StartFailedError, match=r"^deadline"):
        wait(container, clock)


def test_engine_may_go_away_and_come_back(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    def go(away: bool) -> None:
        container.away = away
        container.lines.close()

    steps: dict[float, Callable[[], None]] = {5.0: lambda: go(True), 100.0: lambda: go(False)}
    steps |= {110.0: lambda: container.say(*made_up.START), 150.0: lambda: answers.append(Readiness(True))}
    assert wait(container, clock, steps).phases["api"] == 0


def test_engine_that_stays_away_is_an_error_of_its_own(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    del answers

    def go() -> None:
        container.away = True

    with pytest.raises(EngineError, match="does not answer"):
        wait(container, clock, {5.0: go})
    assert 120 <= clock.now - 1000 < 140


def test_ctrl_c_is_a_failure_too(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    del answers

    def press() -> None:
        raise KeyboardInterrupt

    with pytest.raises(StartFailedError, match=r"^interrupted after 0:05, in phase attest"):
        wait(container, clock, {5.0: press})


def test_server_without_a_log_is_ready_all_the_same(
    container: made_up.Container, clock: made_up.Clock, answers: list[Readiness]
) -> None:
    container.lines.close()
    assert wait(container, clock, {5.0: lambda: answers.append(Readiness(True))}).seconds < 8
