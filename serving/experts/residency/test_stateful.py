"""Long random lives of the caches, with seeds that do not change: what slots hold is what steps find."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from serving.experts.residency.cache import NoRoomError, SlotCache
from serving.experts.residency.pair import Pair
from serving.experts.residency.pool import Kind, Pool
from serving.experts.residency.rules import PRESETS
from serving.experts.residency.slots import COPYING, READY, Cells, Copy, Slots, Step

LAYERS, EXPERTS = 2, 6
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=80,
    stateful_step_count=80,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)

cells_of_both = st.sets(st.integers(0, LAYERS * EXPERTS - 1), min_size=1, max_size=3)


def array(cells: set[int]) -> Cells:
    return np.array(sorted(cells), np.intp)


class Memory:
    """What is in the slots of one cache, and with what tables steps began."""

    def __init__(self, slots: int) -> None:
        self.held: list[int | None] = [None] * slots
        self.coming: dict[int, int] = {}
        self.tables: dict[int, list[int]] = {}

    def issue(self, copies: tuple[Copy, ...]) -> None:
        for copy in copies:
            assert not any(copy.slot in table for table in self.tables.values()), "overwritten in use"
            assert copy.slot not in self.coming, "two copies into one slot"
            self.held[copy.slot] = None
            self.coming[copy.slot] = copy.cell

    def check(self, cache: SlotCache) -> None:
        for table in [*self.tables.values(), cache.slots.table.tolist()]:
            for cell, slot in enumerate(table):
                assert slot < 0 or self.held[slot] == cell
        owners = cache.slots.owner[cache.slots.owner >= 0].tolist()
        assert len(owners) == len(set(owners))
        assert int(cache.heat.heat.min()) >= 0
        assert min(cache.promoted, cache.fetched, cache.evicted, cache.slots.running) >= 0


class Life(RuleBasedStateMachine):
    """A base cache and, in half of all lives, delta slots that lean on it."""

    @initialize(
        quotas=st.sampled_from([(2, 2), (4, 3), (5,), (6, 6)]),
        preset=st.sampled_from(sorted(PRESETS)),
        floor=st.integers(0, 2),
    )
    def begin_life(self, quotas: tuple[int, ...], preset: str, floor: int) -> None:
        base = SlotCache(Pool(Kind.BASE, LAYERS, EXPERTS, quotas, 1), PRESETS[preset])
        delta = SlotCache(Pool(Kind.QUINTAL, LAYERS, EXPERTS, (2, 2), 1), PRESETS[preset])
        self.pair = Pair(base, delta, floor)
        self.memories = (Memory(base.pool.slots), Memory(4))
        self.steps: list[tuple[Step, Step]] = []
        self.pinned: list[set[int]] = []

    @property
    def caches(self) -> tuple[SlotCache, SlotCache]:
        return self.pair.base, self.pair.delta

    @rule()
    def step_begins(self) -> None:
        steps = self.pair.begin()
        self.steps.append(steps)
        for memory, cache, step in zip(self.memories, self.caches, steps, strict=True):
            memory.tables[step.number] = cache.slots.table.tolist()

    @precondition(lambda self: self.steps)
    @rule(cells=cells_of_both, rows=st.integers(1, 9), first=st.booleans())
    def step_ends(self, cells: set[int], rows: int, first: bool) -> None:
        steps = self.steps.pop(0 if first else -1)
        for memory, step in zip(self.memories, steps, strict=True):
            del memory.tables[step.number]
        copies = self.pair.end(steps, array(cells), np.full(len(cells), rows, np.int64))
        for memory, issued in zip(self.memories, copies, strict=True):
            memory.issue(issued)

    @rule()
    def tick(self) -> None:
        for cache in self.caches:
            cache.tick()

    @rule()
    def pass_(self) -> None:
        before = self.pair.delta.promoted
        self.memories[1].issue(self.pair.promote())
        assert self.pair.delta.promoted - before <= self.pair.delta.rules.promotions

    @rule(cells=cells_of_both, rows=st.integers(1, 9))
    def whole_step(self, cells: set[int], rows: int) -> None:
        """What usually happens: what a step asks for comes, it runs, the hottest get deltas."""
        self.fetch(cells)
        self.copies_end(0, "all")
        self.step_begins()
        self.step_ends(cells, rows, first=False)
        self.pass_()
        self.copies_end(0, "all")
        self.copies_end(1, "all")

    @rule(cells=cells_of_both)
    def fetch(self, cells: set[int]) -> None:
        base = self.pair.base
        key = base.key()
        resident = set(np.flatnonzero(base.slots.table >= 0).tolist())
        try:
            self.memories[0].issue(base.fetch(array(cells)))
        except NoRoomError:
            assert base.key() == key
            return
        assert (np.maximum(base.slots.table, base.slots.coming)[array(cells)] >= 0).all()
        held = set(base.pinned().tolist()) | cells
        assert resident & held <= set(np.flatnonzero(base.slots.table >= 0).tolist())

    @rule(cells=cells_of_both, delta=st.booleans())
    def fetch_some(self, cells: set[int], delta: bool) -> None:
        if delta:
            self.memories[1].issue(self.pair.fetch_some(array(cells)))
        else:
            self.memories[0].issue(self.pair.base.fetch_some(array(cells)))

    # More pins, and nothing would ever be evicted.
    @precondition(lambda self: not self.pinned)
    @rule(cell=st.integers(0, LAYERS * EXPERTS - 1))
    def pin(self, cell: int) -> None:
        self.pair.base.pin(np.array([cell]))
        self.pinned.append({cell})

    @precondition(lambda self: self.pinned)
    @rule()
    def unpin(self) -> None:
        self.pair.base.unpin(array(self.pinned.pop()))

    @rule(which=st.integers(0, 1), how=st.sampled_from(["all", "first", "last", "first fails"]))
    def copies_end(self, which: int, how: str) -> None:
        cache, memory = self.caches[which], self.memories[which]
        under_way = np.flatnonzero(cache.slots.state == COPYING)
        slots = {"all": under_way, "last": under_way[-1:]}.get(how, under_way[:1])
        for slot in slots.tolist():
            cell = memory.coming.pop(slot)
            memory.held[slot] = None if how == "first fails" else cell
        if how == "first fails":
            cache.copy_failed(slots)
        else:
            cache.copied(slots)
        self.pair.lean()

    @invariant()
    def what_slots_hold(self) -> None:
        if not hasattr(self, "pair"):
            return
        for cache, memory in zip(self.caches, self.memories, strict=True):
            memory.check(cache)
        base, delta = self.caches
        with_delta = np.flatnonzero((delta.slots.table >= 0) | (delta.slots.coming >= 0))
        assert (base.slots.table[with_delta] >= 0).all(), "a delta without its base"
        for steps in self.steps:
            of_base, of_delta = (m.tables[s.number] for m, s in zip(self.memories, steps, strict=True))
            assert all(of_base[cell] >= 0 for cell, slot in enumerate(of_delta) if slot >= 0), (
                "a step with half an expert"
            )
        for group, quota in enumerate(base.pool.quotas):
            leaning = with_delta[with_delta // base.pool.width == group].size
            assert quota == base.pool.width or leaning == 0 or quota - leaning >= self.pair.floor
        assert int((base.slots.state == READY).sum()) <= base.pool.slots


def test_lives_of_caches() -> None:
    run_state_machine_as_test(Life, settings=SETTINGS)


@pytest.mark.parametrize(
    ("owner", "method", "wrong"),
    [
        (Pair, "lean", lambda self: None),
        (Pair, "_allowed", lambda self, group: self.base.slots.table.reshape(-1, self.base.pool.width)[group] >= 0),
        (Slots, "_drained", lambda self: np.ones(self.state.size, np.bool_)),
        (
            SlotCache,
            "_evictable",
            lambda self, group: np.flatnonzero((self.slots.group == group) & (self.slots.state == 2)),
        ),
    ],
)
def test_lives_show_mistakes(
    owner: type, method: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a pair, which protocol/ does not explore, and one that it does."""
    monkeypatch.setattr(owner, method, wrong)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run_state_machine_as_test(Life, settings=SETTINGS)
