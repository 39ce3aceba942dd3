"""Every state of the protocol is one that may be; without any one part of it, there is one that may not."""

import pytest

from kernels.p2p_allreduce.protocol.model import Deadlines, Design, ProtocolError, Setting, Shape, explore

ONE: Shape = ((0,),)
TWO: Shape = ((0,), (1,))
# Two blocks that share three pieces otherwise in every round, as launches of other sizes do.
UNEVEN: tuple[Shape, ...] = (((0, 1), (2,)), ((0,), (1, 2)), ((0, 1, 2),), ((0,), (1,), (2,)))


@pytest.mark.parametrize(
    ("ranks", "rounds", "kills", "deadlines"),
    [
        (2, (ONE,) * 5, 0, Deadlines.NEVER),
        (3, (ONE,) * 4, 0, Deadlines.NEVER),
        # Only the first to give up a dead peer needs its deadline: the others are told, or they would wait for ever.
        (2, (ONE,) * 4, 1, Deadlines.DEAD),
        (3, (ONE,) * 3, 1, Deadlines.DEAD),
        (3, (ONE,) * 2, 2, Deadlines.DEAD),
        # A deadline that comes too early, for a peer that is only slow, makes no sum wrong either.
        (2, (ONE,) * 5, 1, Deadlines.ANY_TIME),
        (3, (ONE,) * 3, 0, Deadlines.ANY_TIME),
        (3, (ONE,) * 2, 1, Deadlines.ANY_TIME),
        (2, UNEVEN[:3], 0, Deadlines.NEVER),
        (2, UNEVEN[1:], 0, Deadlines.NEVER),
        (2, UNEVEN[:3], 1, Deadlines.ANY_TIME),
        # A slot's next round comes while a rank that gives up in the midst of a launch has stored but some of its data.
        (2, (TWO,) * 3, 0, Deadlines.ANY_TIME),
    ],
)
def test_every_state(ranks: int, rounds: tuple[Shape, ...], kills: int, deadlines: Deadlines) -> None:
    assert explore(Design(), Setting(ranks, rounds, kills, deadlines)) > 50


@pytest.mark.parametrize(
    ("design", "setting", "wrong"),
    [
        (Design(slots=1), Setting(2, (ONE,) * 3), "becomes round 2's"),
        (Design(released=False), Setting(2, (ONE,)), "in round 1 and finds round 0's"),
        (Design(acquired=False), Setting(2, (ONE,)), "in round 1 and finds round 0's"),
        (Design(stops=False), Setting(2, (ONE,) * 3, 0, Deadlines.ANY_TIME), "in round 1, becomes round 3's"),
        (Design(agrees=False), Setting(2, (TWO,), 0, Deadlines.ANY_TIME), "in round 1 and finds round 0's"),
        (Design(tells=False), Setting(3, (ONE,) * 2, 1, Deadlines.DEAD), "is stuck in round"),
        (Design(), Setting(2, (ONE,), 1, Deadlines.NEVER), "is stuck in round 1"),
    ],
    ids=[
        "one slot",
        "no release",
        "no acquire",
        "writes after giving up",
        "says of some that all came",
        "tells nobody",
        "no deadline",
    ],
)
def test_every_part_is_needed(design: Design, setting: Setting, wrong: str) -> None:
    with pytest.raises(ProtocolError, match=wrong):
        explore(design, setting)


def test_the_way_to_an_error_is_told() -> None:
    with pytest.raises(ProtocolError, match=r"^\d\.0 in round 1 issues; .*finds round 0's$"):
        explore(Design(released=False), Setting(2, (ONE,)))


def test_too_large_a_setting() -> None:
    with pytest.raises(ValueError, match="expected at most 256"):
        explore(Design(), Setting(8, (ONE,)))
