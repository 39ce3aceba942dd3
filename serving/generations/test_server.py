from dataclasses import replace

import pytest

from images.manifest import model
from serving.control.made_up import NAME, generation
from serving.generations.server import SCHEMA, Server
from tools.cli.errors import UserError

AT = "2026-01-01T00:00:00+00:00"


def served(*numbers: int) -> Server:
    server = Server(SCHEMA, NAME)
    for number in numbers:
        server = server.staged(generation(number), AT).served().settled()
    return server


def test_places_are_bootcs() -> None:
    server = served(1, 2, 3).staged(generation(4), AT).failed("crashed", "log", AT).staged(generation(5), AT)
    places = [server.place(one) for one in server.generations]
    assert places == ["superseded", "previous", "running", "failed", "staged"]
    assert (server.generation(4).why, server.generation(4).log) == ("crashed", "log")
    assert server.settled().going_down(AT).stopped_for_good().place(server.generation(3)) == "stopped"


def test_change_that_fails_leaves_running_and_previous() -> None:
    server = served(1, 2).staged(generation(3), AT).at_phase("stopping").at_phase("returning", "hung", "log")
    assert server.under_way.why == "hung"
    after = server.failed("hung", "log", AT)
    assert (after.running, after.previous, after.operation) == (2, 1, None)
    assert after.failure and after.failure.generation == 3
    assert after.staged(generation(4), AT).served().failure is None


def test_after_down_there_is_nothing_to_go_back_to_and_the_old_one_is_the_previous() -> None:
    server = served(1).going_down(AT).stopped_for_good().staged(generation(2), AT)
    assert server.under_way.back is None
    after = server.served()
    assert (after.running, after.previous, after.stopped) == (2, 1, False)


def test_start_again_keeps_number_and_previous() -> None:
    server = served(1, 2).starting_again(AT).served().settled()
    assert (server.running, server.previous, len(server.generations)) == (2, 1, 2)
    failed = served(1, 2).starting_again(AT).failed("crashed", None, AT)
    assert failed.generation(2).outcome == "served" and failed.running == 2


def test_down_gives_up_what_was_interrupted() -> None:
    server = served(1).staged(generation(2), AT).at_phase("starting").going_down(AT)
    assert server.generation(2).outcome == "failed" and server.running == 1
    done = served(1).staged(generation(2), AT).served().going_down(AT)
    assert done.generation(2).outcome == "served" and done.running == 2


def test_state_is_read_as_it_was_written() -> None:
    server = served(1, 2).staged(generation(3, tuning=True), AT).at_phase("tuning")
    assert Server.decode(model.dumps(server), NAME) == server


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "other"}, "name: expected 'toy', found 'other'"),
        ({"generations": (generation(2),)}, "numbers from 1 without a gap"),
        ({"running": 9}, "generation 9: is mentioned and not there"),
    ],
)
def test_state_that_contradicts_itself_is_refused(changes: dict[str, object], words: str) -> None:
    damaged = model.dumps(replace(served(1), **changes))  # type: ignore[arg-type]
    with pytest.raises(model.DataError, match=words):
        Server.decode(damaged, NAME)


def test_number_that_is_not_there_is_said() -> None:
    with pytest.raises(UserError, match="toy has no generation 3; there are 1 to 2"):
        served(1, 2).generation(3)
    with pytest.raises(UserError, match="there are none yet"):
        Server(SCHEMA, NAME).generation(1)
