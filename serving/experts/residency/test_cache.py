"""What passes, fetches and pins do, by example; and what is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from serving.experts.residency.cache import NoRoomError, SlotCache
from serving.experts.residency.heat import Heat
from serving.experts.residency.pair import Pair
from serving.experts.residency.pool import Kind, Pool, PoolError, admit, slot_bytes
from serving.experts.residency.rules import DYNAMIC, HEAT_LIMIT, OURS, W2, Rules
from serving.experts.residency.slots import Cells, Copy


def array(*cells: int) -> Cells:
    return np.array(cells, np.intp)


def asked(cache: SlotCache, rows: dict[int, int]) -> None:
    """A step asks for cells, with so many rows each."""
    cache.end(cache.begin(), array(*rows), np.array([*rows.values()], np.int64))


def promote(cache: SlotCache) -> tuple[Copy, ...]:
    """A pass, whose copies are complete at once."""
    copies = cache.promote()
    cache.copied(array(*(copy.slot for copy in copies)))
    return copies


def cache(slots: int, rules: Rules, experts: int = 40) -> SlotCache:
    return SlotCache(Pool(Kind.FP4_SCALED, 1, experts, (slots,), 1), rules)


def test_eight_a_pass_hottest_first() -> None:
    """The numbers of the 2-bit line's delta manager."""
    of = cache(20, W2)
    asked(of, {cell: cell + 1 for cell in range(20)})
    assert sorted(copy.cell for copy in promote(of)) == list(range(12, 20))
    assert sorted(copy.cell for copy in promote(of)) == list(range(4, 12))
    assert len(promote(of)) == 4 and promote(of) == ()


def test_owner_that_is_cold_makes_way_and_no_other() -> None:
    of = cache(1, W2)
    asked(of, {0: 1})
    promote(of)
    for tick in range(4):
        of.tick()
        asked(of, {1: 9})
        # The first tick ends the window in which 0 was seen; two without it follow.
        assert [copy.cell for copy in promote(of)] == ([1] if tick == 2 else [])
    asked(of, {2: 10_000})
    assert promote(of) == (), "owner 1 was seen in this window"


def test_numbers_of_the_presets() -> None:
    """As published; ours has both, and nothing weaker."""
    assert (W2.promotions, W2.cold_ticks, W2.margin, W2.recent_steps) == (8, 2, None, None)
    assert (DYNAMIC.swaps, DYNAMIC.margin, DYNAMIC.stay_ticks, DYNAMIC.recent_steps) == (2, Fraction(5, 4), 1, None)
    assert (OURS.promotions, OURS.cold_ticks, OURS.margin, OURS.swaps) == (8, 2, Fraction(5, 4), 2)
    assert OURS.least_stay == W2.least_stay == 2 and DYNAMIC.least_stay == 1


def test_heat_halves_and_lasts() -> None:
    of = cache(1, W2)
    asked(of, {0: 8})
    for heat in (8, 4, 2, 1):
        assert int(of.heat.heat[0]) == heat * W2.unit
        of.tick()


def test_margin_of_the_dynamic_mode() -> None:
    of = cache(2, DYNAMIC)
    asked(of, {0: 100, 1: 100})
    promote(of)
    of.tick()
    asked(of, {0: 50, 1: 50, 2: 125})
    assert promote(of) == (), "125 is not more than 1.25 times 100"
    asked(of, {2: 1})
    assert [copy.cell for copy in promote(of)] == [2]


def test_two_swaps_a_layer() -> None:
    of = SlotCache(Pool(Kind.BASE, 2, 8, (4, 4), 1), DYNAMIC)
    asked(of, dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11), 1))
    promote(of)
    of.tick()
    asked(of, dict.fromkeys((4, 5, 6, 7, 12, 13, 14, 15), 50))
    assert len(promote(of)) == 4 and of.evicted == 4


def test_pinned_owner_stays() -> None:
    of = cache(1, W2)
    asked(of, {0: 1})
    promote(of)
    of.pin(array(0))
    for _ in range(4):
        of.tick()
    asked(of, {1: 9})
    assert promote(of) == ()
    with pytest.raises(NoRoomError, match="1 experts must come in, 0 slots of 1 can"):
        of.fetch(array(1))
    of.unpin(array(0))
    assert [copy.cell for copy in of.fetch(array(1))] == [1]
    with pytest.raises(ValueError, match="cell 0 is not pinned"):
        of.unpin(array(0))


def test_no_room_while_copies_are_under_way() -> None:
    of = cache(1, W2)
    (copy,) = of.fetch(array(0))
    with pytest.raises(NoRoomError) as error:
        of.fetch(array(1))
    assert error.value.later
    of.copied(array(copy.slot))
    assert [copy.cell for copy in of.fetch(array(1))] == [1]


def test_slot_waits_for_every_step_that_may_read_it() -> None:
    of = cache(1, W2)
    of.copied(array(*(copy.slot for copy in of.fetch(array(0)))))
    one, two = of.begin(), of.begin()
    assert of.fetch(array(1)) == () and of.missing(array(0, 1)).tolist() == [0, 1]
    late = of.begin()
    assert of.end(two) == ()
    assert of.end(one) == (Copy(1, 0),), "the step that began after the eviction cannot read it"
    of.end(late)
    with pytest.raises(ValueError, match="step 1 is not under way"):
        of.end(one)


def test_fetch_takes_a_promotions_place_that_nobody_waits_for() -> None:
    of = cache(1, W2)
    asked(of, {0: 1, 1: 5})
    step = of.begin()
    promote(of)
    of.end(step)
    for _ in range(3):
        of.tick()
    asked(of, {2: 9})
    step = of.begin()
    assert of.promote() == () and int(of.slots.coming[2]) == 0
    assert of.fetch(array(3)) == () and int(of.slots.coming[2]) == -1
    assert of.end(step) == (Copy(3, 0),)


def test_rows_that_are_none() -> None:
    of = cache(1, W2)
    step = of.begin()
    with pytest.raises(ValueError, match="0 rows routed"):
        of.end(step, array(0), np.array([0]))
    assert of.slots.running == 1 and int(of.heat.heat.sum()) == 0
    of.end(step)
    heat = Heat.empty(2)
    with pytest.raises(ValueError, match="-1 rows routed"):
        heat.count(array(0), np.array([-1]), W2)


def test_time_without_end() -> None:
    """Heat comes to nothing, who was never asked for again stays cold, and owners stay old."""
    of = cache(1, W2)
    asked(of, {0: 1})
    promote(of)
    for ticks in range(600):
        assert int(of.heat.heat[0]) == (1024 >> ticks if ticks < 11 else 0)
        assert int(of.heat.cold[0]) == min(max(ticks - 1, 0), 127) and int(of.slots.age[0]) == min(ticks, 127)
        of.tick()


def test_candidates_are_of_this_window_or_the_last() -> None:
    of = cache(2, W2)
    asked(of, {0: 99})
    of.tick()
    asked(of, {1: 1})
    of.tick()
    assert [copy.cell for copy in promote(of)] == [1], "0 is hotter, and nobody asked for it lately"


def test_fetch_sends_away_who_is_cold_then_who_has_least_warmth() -> None:
    of = cache(3, replace(W2, recent_steps=2, cap=1 << 20))
    of.copied(array(*(copy.slot for copy in of.fetch(array(0, 1, 2)))))
    asked(of, {0: 100})
    for _ in range(3):
        of.tick()
    asked(of, {1: 20})
    asked(of, {2: 9})
    assert of.heat.recent[:3].tolist() == [50 * 1024, 10 * 1024, 9 * 1024]
    assert of.heat.warmth(array(1, 2)).tolist() == [60 * 1024, 45 * 1024]
    for cell in (3, 4):
        (copy,) = of.fetch(array(cell))
        of.copied(array(copy.slot))
        of.pin(array(cell))
    assert of.missing(array(0, 1, 2)).tolist() == [0, 2], "0 is cold though hotter; 2 was asked for later, and less"


def test_recent_heat_outweighs_what_was() -> None:
    of = cache(2, replace(OURS, recent_steps=1))
    of.copied(array(*(copy.slot for copy in of.fetch(array(0, 1)))))
    asked(of, {0: 16})
    for _ in range(5):
        asked(of, {1: 1})
    assert int(of.heat.heat[0]) > int(of.heat.heat[1])
    for _ in range(2):
        asked(of, {1: 3})
    assert len(of.fetch(array(2))) == 1 and of.missing(array(0, 1)).tolist() == [0]


def test_fetch_some_weighs_who_was_seen() -> None:
    of = cache(1, W2)
    of.copied(array(*(copy.slot for copy in of.fetch(array(0)))))
    asked(of, {0: 2, 1: 2, 2: 3})
    assert of.fetch_some(array(1)) == (), "as hot, and seen"
    assert [copy.cell for copy in of.fetch_some(array(1, 2))] == [2]
    of.copied(array(0))
    of.tick()
    assert [copy.cell for copy in of.fetch_some(array(3))] == [3], "unseen in this window, though hotter"


def test_hope_for_room() -> None:
    of = SlotCache(Pool(Kind.BASE, 2, 4, (1, 1), 1), W2)

    def later(cell: int) -> bool:
        with pytest.raises(NoRoomError) as error:
            of.fetch(array(cell))
        return error.value.later

    of.copied(array(*(copy.slot for copy in of.fetch(array(0)))))
    of.fetch(array(4))
    of.pin(array(0))
    assert not later(1), "the copy under way is of another layer"
    of.unpin(array(0))
    step = of.begin()
    assert of.fetch(array(1)) == () and later(2), "the slot waits for a step, and then for a copy"
    of.pin(array(1))
    assert not later(2), "who comes will stay"
    of.end(step)


def test_heat_does_not_overflow() -> None:
    heat = Heat.empty(1)
    for _ in range(3):
        heat.count(array(0), np.array([1 << 60]), replace(W2, recent_steps=99))
        assert int(heat.heat[0]) == int(heat.recent[0]) == int(heat.warmth(array(0))[0]) == HEAT_LIMIT


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"promotions": -1}, "-1 promotions"),
        ({"cold_ticks": 0}, "cold after 0"),
        ({"margin": Fraction(1, 2)}, "margin 1/2"),
        ({"unit": 0}, "unit 0"),
        ({"cap": HEAT_LIMIT + 1}, "expected 1 <= unit <= cap"),
        ({"stay_ticks": 128}, "stay 128"),
        ({"swaps": -2}, "-2 swaps"),
        ({"recent_steps": 0}, "recent heat of 0 steps"),
    ],
)
def test_rules_that_are_none(changes: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        replace(OURS, **changes)  # type: ignore[arg-type]


def test_bytes_of_slots() -> None:
    """As published for a hidden size of 4096 and an intermediate size of 2048."""
    published = {Kind.BASE: 7_077_888, Kind.FP4: 12_582_912, Kind.FP4_SCALED: 13_369_344, Kind.QUINTAL: 7_864_320}
    assert {kind: slot_bytes(kind, 4096, 2048) for kind in Kind} == published
    with pytest.raises(PoolError, match="multiples of 64"):
        slot_bytes(Kind.BASE, 4096, 100)


@pytest.mark.parametrize(
    ("layers", "experts", "quotas", "wrong"),
    [
        (0, 4, (1,), "0 layers x 4 experts"),
        (2, 4, (1, 1, 1), "3 quotas: expected 1 or one for each of 2"),
        (2, 4, (5, 1), "quota 5 of layer 0: expected 0 to 4"),
        (2, 4, (-1, 1), "quota -1 of layer 0"),
        (2, 4, (9,), "quota 9 of all layers: expected 0 to 8"),
        (300, 1000, (1,), "300000 cells"),
    ],
)
def test_pools_that_are_none(layers: int, experts: int, quotas: tuple[int, ...], wrong: str) -> None:
    with pytest.raises(PoolError, match=wrong):
        Pool(Kind.BASE, layers, experts, quotas, 1)


def test_floor() -> None:
    own = Pool(Kind.BASE, 3, 64, (24, 23, 30), 1)
    with pytest.raises(PoolError, match="23 slots for layer 1: the floor for 4 rows x top 6 is 24"):
        admit(own, 4, 6)
    assert not admit(own, 4, 6, forced=True) and admit(own, 3, 6)
    shared = Pool(Kind.BASE, 3, 64, (53,), 1)
    with pytest.raises(PoolError, match="53 slots for all layers: the floor for 3 rows x top 6 is 54"):
        admit(shared, 3, 6)
    assert admit(Pool(Kind.BASE, 3, 8, (8, 8, 8), 1), 1000, 6), "no more than all experts"
    with pytest.raises(PoolError, match="0 rows x top 6"):
        admit(own, 0, 6)


def pair(base_slots: int, floor: int, kind: Kind = Kind.QUINTAL) -> Pair:
    base = SlotCache(Pool(Kind.BASE, 1, 8, (base_slots,), 1), W2)
    return Pair(base, SlotCache(Pool(kind, 1, 8, (4,), 1), W2), floor)


def test_deltas_leave_the_base_its_floor() -> None:
    of = pair(5, 3)
    of.base.copied(array(*(copy.slot for copy in of.base.fetch(array(0, 1, 2, 3, 4)))))
    of.end(of.begin(), array(0, 1, 2, 7), np.array([3, 2, 1, 9]))
    assert sorted(copy.cell for copy in of.promote()) == [0, 1], "7 has no base, and 3 slots must stay free to change"
    assert of.base.pinned().tolist() == [0, 1]
    assert len(of.base.fetch(array(5, 6, 7))) == 3
    assert of.promote() == () and of.fetch_some(array(2)) == ()


def test_deltas_of_a_base_that_is_whole() -> None:
    of = pair(8, 8)
    of.base.copied(array(*(copy.slot for copy in of.base.fetch(np.arange(8)))))
    of.end(of.begin(), np.arange(6), np.arange(1, 7))
    assert len(of.promote()) == 4


def test_pairs_that_are_none() -> None:
    with pytest.raises(PoolError, match="need no base"):
        pair(8, 0, Kind.FP4_SCALED)
    base = SlotCache(Pool(Kind.BASE, 1, 9, (8,), 1), W2)
    with pytest.raises(PoolError, match="expected the same layers and experts"):
        Pair(base, pair(8, 0).delta, 0)


def test_fetch_takes_a_free_slot_before_a_place_that_was_promised() -> None:
    of = cache(2, W2)
    of.fetch(array(0, 1))
    of.copied(array(0))
    step = of.begin()
    assert of.fetch_some(array(2)) == ()
    of.copy_failed(array(1))
    assert of.fetch(array(3)) == (Copy(3, 1),) and of.end(step) == (Copy(2, 0),)
