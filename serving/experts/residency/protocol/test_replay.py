"""A replay ends, in as many passes as said, with the routing of a resident forward; each of its rules is needed."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from serving.experts.residency import replay
from serving.experts.residency.protocol.explorer import ProtocolError, explore
from serving.experts.residency.protocol.replay_world import MACHINE, ReplayWorld
from serving.experts.residency.replay import Again, ByLayer, Finish, Need, Phase, Replay, ReplayError
from serving.experts.residency.slots import Cells

NONE = np.zeros(0, np.intp)


@pytest.mark.parametrize(
    ("layers", "experts", "rows", "limit", "fits"),
    [
        (2, 2, 2, 3, True),
        (3, 2, 1, 3, True),
        (4, 2, 1, 3, True),
        (3, 2, 2, 1, False),
        (3, 2, 1, 0, False),
        (2, 3, 2, 3, False),
    ],
)
def test_every_state(layers: int, experts: int, rows: int, limit: int, fits: bool) -> None:
    world = ReplayWorld(layers, experts, rows, limit, fits)
    states = explore(world)
    print(states, "states")
    assert states > 5
    assert world.most == replay.passes(Replay(experts, layers, rows, limit)), "the bound is reached"


def _broken(**functions: object) -> SimpleNamespace:
    return SimpleNamespace(**(vars(MACHINE) | functions))


def _holds_nothing(state: Replay, used: Cells, missed: Cells) -> tuple[Replay, Again | ByLayer | Finish]:
    after, action = replay.passed(state, used, missed)
    return after, replace(action, hold=NONE) if isinstance(action, Again) else action


def _holds_all(state: Replay, used: Cells, missed: Cells) -> tuple[Replay, Again | ByLayer | Finish]:
    """Takes the routing behind the first miss for certain: nothing wrong, it only may find no room."""
    after, action = replay.passed(state, used, missed)
    return after, replace(action, hold=used, must=missed, some=NONE) if isinstance(action, Again) else action


def _takes_the_last(state: Replay, used: Cells, missed: Cells) -> tuple[Replay, Again | ByLayer | Finish]:
    if state.replays == state.limit:
        return replace(state, phase=Phase.DONE), Finish()
    return replay.passed(state, used, missed)


def _goes_on(state: Replay, used: Cells, missed: Cells) -> tuple[Replay, Again | ByLayer | Finish]:
    after, action = replay.passed(replace(state, limit=99), used, missed)
    return replace(after, limit=state.limit), action


def _fetches_too_late(state: Replay, used: Cells, missed: Cells) -> tuple[Replay, Again | ByLayer | Finish]:
    after, action = replay.passed(state, used, missed)
    return after, replace(action, must=NONE, some=missed) if isinstance(action, Again) else action


def _holds_no_layer(state: Replay, used: Cells, missing: Cells) -> tuple[Replay, Need]:
    after, need = replay.routed(state, used, missing)
    return after, Need(need.must, NONE)


def _fetches_no_layer(state: Replay, used: Cells, missing: Cells) -> tuple[Replay, Need]:
    after, need = replay.routed(state, used, missing)
    return after, Need(NONE, need.hold)


@pytest.mark.parametrize(
    ("machine", "wrong"),
    [
        (_broken(passed=_holds_nothing), "misses experts again that were fetched and held"),
        (_broken(passed=_takes_the_last), "is taken for right"),
        (_broken(passed=_goes_on), "pass 6, expected at most 5"),
        (_broken(passed=_fetches_too_late), "misses experts again"),
        (_broken(routed=_holds_no_layer), "is computed without"),
        (_broken(routed=_fetches_no_layer), "is computed without"),
    ],
)
def test_every_rule_is_needed(machine: SimpleNamespace, wrong: str) -> None:
    with pytest.raises(ProtocolError, match=wrong):
        explore(
            ReplayWorld(6, 1, machine=machine) if "pass 6" in wrong else ReplayWorld(4, 2, limit=2, machine=machine)
        )


def test_holding_what_is_not_certain_is_no_error() -> None:
    explore(ReplayWorld(3, 2, machine=_broken(passed=_holds_all)))


def test_calls_at_the_wrong_time() -> None:
    state = Replay(experts=4, layers=2, rows=1)
    with pytest.raises(ReplayError, match="is whole, expected by layer"):
        replay.routed(state, np.array([0]), NONE)
    done, _ = replay.passed(state, np.array([0, 4]), NONE)
    with pytest.raises(ReplayError, match="is done, expected whole"):
        replay.passed(done, np.array([0]), NONE)
    by_layer = replace(state, phase=Phase.BY_LAYER)
    with pytest.raises(ReplayError, match="expected the experts of layer 0"):
        replay.routed(by_layer, np.array([4]), NONE)
    with pytest.raises(ReplayError, match="layer 0 of 2 is still to be computed"):
        replay.last_layer(by_layer)
    again, _ = replay.passed(state, np.array([0, 4]), np.array([0]))
    assert again.replays == 1 and replay.no_room(again)[0] == by_layer, "a replay for which there is no room is none"
    with pytest.raises(ReplayError, match="one row's experts"):
        replay.no_room(by_layer)
