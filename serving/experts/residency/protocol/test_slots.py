"""Every state of small caches is one that may be; without any one of its rules, there is one that may not."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from serving.experts.residency.cache import NoRoomError, SlotCache
from serving.experts.residency.heat import Heat
from serving.experts.residency.pool import Pool
from serving.experts.residency.protocol.explorer import ProtocolError, explore
from serving.experts.residency.protocol.slots_state import Setting
from serving.experts.residency.protocol.slots_world import SlotsWorld
from serving.experts.residency.rules import Rules
from serving.experts.residency.slots import Cells, Copy, Slots, Step

COLD = Rules(promotions=1, cold_ticks=1, unit=1, cap=1)
WARMER = Rules(promotions=1, cold_ticks=2, unit=1, cap=3)
MARGIN = Rules(promotions=2, cold_ticks=1, margin=Fraction(5, 4), stay_ticks=1, swaps=1, unit=1, cap=2)
LONG = Rules(promotions=1, cold_ticks=None, margin=Fraction(3, 2), stay_ticks=2, swaps=1, unit=1, cap=3)

ONE_SLOT = Setting((1,), 1, 2, COLD, 2, ((0,), (1,)), ((0,), (1,)), (0,), (0,), failures=True)
OVERLAP = Setting((2,), 1, 3, COLD, 2, ((0, 1),), ((0, 1),), (2,))
FETCHES = Setting((2,), 1, 3, COLD, 2, (), ((0, 1), (1, 2)), (0,), (2,), False, True)
LAYERS = Setting((1, 1), 2, 2, COLD, 1, ((0, 2), (1,)), ((1, 3),), (2,), failures=True)
SHARED = Setting((2,), 2, 2, COLD, 1, ((0, 2),), ((1, 3),), (), (3,))
COUNTS = Setting((1,), 1, 2, WARMER, 1, ((0,), (1,)))
SWAPS = Setting((2,), 1, 4, MARGIN, 1, ((0, 1), (2, 3)))
STAYS = Setting((1,), 1, 2, LONG, 1, ((0,), (1,)), ((1,),))
LASTS = Setting((1,), 1, 2, replace(WARMER, cold_ticks=1, cap=4), 1, ((0, 0, 0, 0), (1,)))
RECENT = Setting((2,), 1, 3, replace(COLD, recent_steps=2), 1, ((0,), (1,)), ((0, 1), (2,)), passes=False)


@pytest.mark.parametrize(
    "setting",
    [ONE_SLOT, OVERLAP, FETCHES, LAYERS, SHARED, COUNTS, SWAPS, STAYS, LASTS, RECENT],
    ids=["one slot", "overlap", "fetches", "layers", "shared", "counts", "swaps", "stays", "lasts", "recent"],
)
def test_every_state(setting: Setting) -> None:
    states = explore(SlotsWorld(setting))
    print(states, "states")
    assert states > 500


class _HasteSlots(Slots):
    def _drained(self) -> npt.NDArray[np.bool_]:
        return np.ones(self.state.size, np.bool_)


class _EarlySlots(Slots):
    def issue(self) -> tuple[Copy, ...]:
        copies = super().issue()
        for copy in copies:
            self.table[copy.cell] = copy.slot
        return copies


class _ForgetfulSlots(Slots):
    def failed(self, slots: Cells) -> None:
        self.owner[slots] = -1
        self.state[slots] = 0


class _UnaskedSlots(Slots):
    def reserve(self, slots: Cells, cells: Cells, must: bool) -> None:
        super().reserve(slots, cells, must=False)


class _StaleSlots(Slots):
    def reserve(self, slots: Cells, cells: Cells, must: bool) -> None:
        before = self.coming.copy()
        super().reserve(slots, cells, must)
        before[cells] = self.coming[cells]
        self.coming[:] = before


def _with(slots: type[Slots]) -> Callable[[Pool, Rules], SlotCache]:
    def make(pool: Pool, rules: Rules) -> SlotCache:
        cache = SlotCache(pool, rules)
        cache.slots = slots(pool)
        return cache

    return make


class _Unpinned(SlotCache):
    def pin(self, cells: Cells) -> None:
        pass

    def unpin(self, cells: Cells) -> None:
        pass


class _Lost(SlotCache):
    def end(
        self, step: Step, cells: Cells | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> tuple[Copy, ...]:
        super().end(step, cells, np.zeros(0, np.int64) if rows is None else rows)
        return ()


class _Waiting(SlotCache):
    def end(
        self, step: Step, cells: Cells | None = None, rows: npt.NDArray[np.int64] | None = None
    ) -> tuple[Copy, ...]:
        self.slots.end(step)
        if cells is not None and rows is not None:
            self.heat.count(cells, rows, self.rules)
        return ()


class _AnyIsCold(SlotCache):
    def _cold(self, slots: Cells) -> Cells:
        return slots


class _Hottest(SlotCache):
    def _coldest(self, slots: Cells) -> Cells:
        at = int(np.argmax(self.heat.heat[self.slots.owner[slots]]))
        return slots[at : at + 1]


class _Restless(SlotCache):
    def _stayed(self, slots: Cells) -> Cells:
        return slots


class _Selfish(SlotCache):
    def _victims(self, needs: npt.NDArray[np.intp], kept: npt.NDArray[np.int32]) -> Cells:
        return super()._victims(needs, kept[:0])


class _Lazy(SlotCache):
    def _place(self, cell: int, group: int, swaps: dict[int, int]) -> int | None:
        return super()._place(cell, group, swaps) if cell else None


class _Refuses(SlotCache):
    def _victims(self, needs: npt.NDArray[np.intp], kept: npt.NDArray[np.int32]) -> Cells:
        if self.heat.seen[0]:
            raise self._no_room(0, 1, 0, self.slots.state >= 0)
        return super()._victims(needs, kept)


class _LongMemory(Heat):
    def warmth(self, cells: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        heat: npt.NDArray[np.int64] = self.heat[cells]
        return heat


def _heat_alone(pool: Pool, rules: Rules) -> SlotCache:
    cache = SlotCache(pool, rules)
    cache.heat = _LongMemory(**vars(cache.heat))
    return cache


class _Hopeless(SlotCache):
    def _no_room(self, group: int, need: int, found: int, usable: npt.NDArray[np.bool_]) -> NoRoomError:
        error = super()._no_room(group, need, found, usable)
        error.later = False
        return error


class _HalfDone(SlotCache):
    def fetch(self, cells: Cells) -> tuple[Copy, ...]:
        return tuple(copy for cell in cells.tolist() for copy in super(_HalfDone, self).fetch(np.array([cell])))


def _rules(**changes: object) -> Callable[[Pool, Rules], SlotCache]:
    def make(pool: Pool, rules: Rules) -> SlotCache:
        fields = {name: getattr(rules, name) for name in rules.__dataclass_fields__} | changes
        return SlotCache(pool, Rules(**fields))

    return make


@pytest.mark.parametrize(
    ("make", "setting", "wrong"),
    [
        (_with(_HasteSlots), ONE_SLOT, "is overwritten while step"),
        (_with(_EarlySlots), ONE_SLOT, "finds -2 in slot|finds -3 in slot"),
        (_with(_ForgetfulSlots), ONE_SLOT, "a cell is in two places|which is elsewhere"),
        (_with(_UnaskedSlots), FETCHES, "for which a step waits, is sent away"),
        (_with(_StaleSlots), OVERLAP, "a cell is in two places|which is elsewhere"),
        (_Unpinned, FETCHES, "is evicted, and pinned|with later True, expected False"),
        (_Lost, OVERLAP, "waits for a copy that nobody was told of"),
        (_Waiting, OVERLAP, "waits for a step, and none is under way"),
        (_AnyIsCold, COUNTS, "against the rules"),
        (_Hottest, SWAPS, "a pass leaves out"),
        (_Restless, STAYS, "ticks, expected 2"),
        (_Selfish, FETCHES, "was to be fetched, and does not come"),
        (_Lazy, COUNTS, "a pass leaves out 0"),
        (_Refuses, OVERLAP, "are refused, though there is room"),
        (_HalfDone, FETCHES, "refused, and changed|does not come"),
        (_heat_alone, RECENT, "away, expected"),
        (_Hopeless, FETCHES, "with later False, expected True"),
        (_rules(promotions=2), Setting((2,), 1, 2, COLD, 1, ((0, 1),)), "more than 1"),
        (_rules(swaps=2), SWAPS, "more than 1 of a quota"),
        (_rules(cold_ticks=1), COUNTS, "against the rules"),
        (_rules(margin=Fraction(1)), Setting((1,), 1, 2, LONG, 1, ((0,), (1,), (0, 1))), "against the rules"),
    ],
)
def test_every_rule_is_needed(make: Callable[[Pool, Rules], SlotCache], setting: Setting, wrong: str) -> None:
    with pytest.raises(ProtocolError, match=wrong) as error:
        explore(SlotsWorld(setting, make))
    print(error.value)


def test_too_many_states_are_said() -> None:
    with pytest.raises(RuntimeError, match="more than 10 states"):
        explore(SlotsWorld(ONE_SLOT), limit=10)
