"""Every state of the protocol is one that may be; without any one part of it, there is one that may not."""

import itertools
from collections.abc import Collection

import pytest

from kernels.p2p_allreduce.protocol.model import Deadlines, Design, ProtocolError, Setting, Shape, explore

ONE: Shape = ((0,),)
TWO: Shape = ((0,), (1,))
# Two blocks that share three pieces otherwise in every round, as launches of other sizes do.
UNEVEN: tuple[Shape, ...] = (((0, 1), (2,)), ((0,), (1, 2)), ((0, 1, 2),), ((0,), (1,), (2,)))
# Two pieces of which a round has one: the word that rounds 1 and 5 have in their slot, round 3 leaves to be aged.
OTHER: Shape = ((1,),)
SPARSE: tuple[Shape, ...] = (ONE, OTHER, OTHER, ONE, ONE, OTHER, ONE)
# In round 3, a block other than the one that stores ages the word of rounds 1 and 5.
AGES_APART: tuple[Shape, ...] = (ONE, ONE, ((), (1,)), ONE, ONE)
EVERY = range(1, 100)
# Flags that come again after two rounds of a slot, and ageing in every round; and with rounds between that age nothing.
WRAPS = Design(flags=4, ages=2)
WRAPS_LATER = Design(flags=6, ages=4)


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
    ("design", "ranks", "rounds", "ll", "kills", "deadlines"),
    [
        (WRAPS, 2, SPARSE, EVERY, 0, Deadlines.NEVER),
        (WRAPS_LATER, 2, (*SPARSE, *SPARSE), EVERY, 0, Deadlines.NEVER),
        (WRAPS_LATER, 2, (*SPARSE, *SPARSE), (1, 2, 7, 8, 13), 1, Deadlines.ANY_TIME),
        (WRAPS, 3, (ONE,) * 3, EVERY, 0, Deadlines.NEVER),
        (WRAPS, 3, (ONE,) * 3, (2,), 0, Deadlines.NEVER),
        (WRAPS, 2, (ONE,) * 5, EVERY, 1, Deadlines.DEAD),
        (Design(), 3, (ONE,) * 2, (2,), 2, Deadlines.DEAD),
        (WRAPS, 2, UNEVEN[:3], (1, 3), 0, Deadlines.NEVER),
        (WRAPS, 2, UNEVEN[2:], (2,), 0, Deadlines.NEVER),
        # Any of a block's threads may store, and say that it arrived, where others saw that the rank has given up.
        (Design(flags=4, ages=2, agrees=False), 2, (TWO, ONE, TWO), EVERY, 0, Deadlines.ANY_TIME),
        (WRAPS, 2, (TWO,) * 2, (2,), 0, Deadlines.ANY_TIME),
        # So may any age or not, and the peer may complete that round, but not the next, with words that are not aged.
        (WRAPS, 2, AGES_APART, EVERY, 1, Deadlines.ANY_TIME),
        (WRAPS, 2, AGES_APART, (1, 2, 5), 1, Deadlines.ANY_TIME),
    ],
)
def test_every_state_of_ll(
    design: Design, ranks: int, rounds: tuple[Shape, ...], ll: Collection[int], kills: int, deadlines: Deadlines
) -> None:
    assert explore(design, Setting(ranks, rounds, kills, deadlines, ll)) > 50


@pytest.mark.parametrize("mix", list(itertools.product((False, True), repeat=5)))
def test_every_mix_of_protocols(mix: tuple[bool, ...]) -> None:
    ll = tuple(number for number, is_ll in enumerate(mix, 1) if is_ll)
    assert explore(WRAPS, Setting(2, SPARSE[:5], 1, Deadlines.ANY_TIME, ll)) > 50


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
        (Design(slots=1), Setting(2, (ONE,) * 3, ll=EVERY), "becomes round 2's"),
        (Design(compares=False), Setting(2, (ONE,) * 3, ll=EVERY), "in round 3 that is round 1's"),
        (Design(flags=4), Setting(2, SPARSE, ll=EVERY), "in round 4 that is round 0's"),
        (Design(flags=4), Setting(2, SPARSE, ll=(1, 5)), "in round 5 that is round 1's"),
        (Design(flags=4, ages=4), Setting(2, SPARSE, ll=(1, 5)), "in round 5 that is round 1's"),
        (Design(flags=4, ages=2, ages_ahead=False), Setting(2, SPARSE, ll=(1, 3, 5)), "in round 5 that is round 1's"),
        (Design(flags=4, ages=2, ages_ahead=False), Setting(2, SPARSE, ll=(1, 5)), "in round 5 that is round 1's"),
        (Design(flags=4, ages=2, spares=False), Setting(2, (TWO[::-1],), ll=EVERY), "in round 1, becomes aged in"),
    ],
    ids=[
        "one slot",
        "no release",
        "no acquire",
        "writes after giving up",
        "says of some that all came",
        "tells nobody",
        "no deadline",
        "LL: one slot",
        "LL: any flag will do",
        "LL: flags come again, in a slot that was never stored to",
        "LL: flags come again",
        "LL: ages too seldom",
        "LL: ages without release",
        "simple: ages without release",
        "LL: ages what it stores",
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
