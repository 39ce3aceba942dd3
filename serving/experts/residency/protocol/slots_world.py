"""The slot cache with all that can happen to it: steps that overlap, copies that take any time or fail, ticks, passes.

What is explored is the cache that serves, not a model of it. Beside it stands what it does not know: what is in the
memory of each slot, and with which table each step under way began. A copy makes a slot's memory garbage from when it
is issued until it is complete; a step under way may read any slot of its table at any time.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ..cache import NoRoomError, SlotCache
from ..pool import Pool
from ..rules import Rules
from ..slots import COPYING, FREE, NOBODY, READY, RETIRED, Copy, Step
from .explorer import ProtocolError
from .fetch_rules import check_fetch, check_may_come, check_no_room
from .pass_rules import check_pass
from .slots_state import BY_FETCH, GARBAGE, Setting, State


class SlotsWorld:
    """All that can happen in a setting; `make` makes the cache (a broken one, to see that it is found)."""

    def __init__(self, setting: Setting, make: Callable[[Pool, Rules], SlotCache] = SlotCache) -> None:
        self.setting, self._make = setting, make

    def start(self) -> State:
        """Empty slots."""
        slots = sum(self.setting.quotas)
        return State(
            self._make(self.setting.pool, self.setting.rules), (NOBODY,) * slots, (), frozenset(), (BY_FETCH,) * slots
        )

    def key(self, state: State) -> bytes:
        """Equal for states that go on alike."""
        # Of steps under way the older ones first: a slot waits for those that began before it was retired.
        tables = [table for _, table in state.running]
        ages = [
            age if what in (COPYING, READY) and self.setting.passes else 0
            for age, what in zip(state.ages, state.cache.slots.state.tolist(), strict=True)
        ]
        rest = (state.memory, tables, sorted(state.pinned), ages, sorted(state.waited))
        return state.cache.key() + repr(rest).encode()

    def ended(self, state: State) -> None:  # noqa: ARG002
        """Time always goes on."""
        raise ProtocolError("nothing can happen any more")

    def check(self, state: State) -> None:
        """What must hold in every state."""
        slots, pool = state.cache.slots, self.setting.pool
        for step, table in (*state.running, (None, tuple(slots.table.tolist()))):
            for cell, slot in enumerate(table):
                if slot != NOBODY and state.memory[slot] != cell:
                    who = "the table" if step is None else f"step {step.number}"
                    raise ProtocolError(f"{who} finds {state.memory[slot]} in slot {slot}, expected {cell}")
        for slot, (what, owner) in enumerate(zip(slots.state.tolist(), slots.owner.tolist(), strict=True)):
            if (what == FREE) != (owner == NOBODY) or (owner != NOBODY and owner // pool.width != slots.group[slot]):
                raise ProtocolError(f"slot {slot} is {what} with owner {owner}")
            place = slots.table if what == READY else slots.coming
            if owner != NOBODY and place[owner] != slot:
                raise ProtocolError(f"slot {slot} has {owner}, which is elsewhere")
            if what == COPYING and state.memory[slot] != GARBAGE - owner:
                raise ProtocolError(f"slot {slot} waits for a copy that nobody was told of")
            if what == RETIRED and not state.running:
                raise ProtocolError(f"slot {slot} waits for a step, and none is under way")
        if np.count_nonzero(slots.table >= 0) + np.count_nonzero(slots.coming >= 0) != np.count_nonzero(
            slots.owner >= 0
        ):
            raise ProtocolError("a cell is in two places")
        heat, cache = state.cache.heat.heat, state.cache
        if (
            heat.min() < 0
            or heat.max() > self.setting.rules.cap
            or cache.heat.recent.min() < 0
            or cache.heat.recent.max() > self.setting.rules.cap
            or min(cache.promoted, cache.fetched, cache.evicted) < 0
        ):
            raise ProtocolError("a count is out of its range")

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen next."""
        setting = self.setting
        if len(state.running) < setting.running:
            cache = state.cache.clone()
            step = cache.begin()
            table = tuple(cache.slots.table.tolist())
            yield "a step begins", replace(state, cache=cache, running=(*state.running, (step, table)))
        for step, _ in state.running:
            left = tuple(one for one in state.running if one[0] != step)
            for cells in (None, *setting.asks):
                yield self._event(state, f"step {step.number} ends with {cells}", partial(_ends, step, cells), left)
        yield self._tick(state)
        if setting.passes:
            yield self._event(state, "a pass", SlotCache.promote, check=partial(check_pass, setting))
        for cells in setting.fetches:
            yield self._event(
                state, f"{cells} are fetched", partial(_fetched, cells), check=partial(check_fetch, cells, setting)
            )
        for cell in setting.some:
            may_come = partial(check_may_come, cell, setting)
            yield self._event(state, f"{cell} may come", partial(_may_come, cell), check=may_come)
        for slot in np.flatnonzero(state.cache.slots.state == COPYING).tolist():
            yield self._copied(state, slot)
            if setting.failures:
                yield self._event(state, f"the copy into {slot} fails", partial(_fails, slot))
        for cell in setting.pins:
            yield self._pinned(state, cell)

    def _event(
        self,
        state: State,
        said: str,
        happens: Callable[[SlotCache], tuple[Copy, ...]],
        running: tuple[tuple[Step, tuple[int, ...]], ...] | None = None,
        check: Callable[[State, SlotCache], None] | None = None,
    ) -> tuple[str, State]:
        cache = state.cache.clone()
        try:
            copies = happens(cache)
        except NoRoomError as error:
            if cache.key() != state.cache.key():
                raise ProtocolError(f"{said}: refused, and changed") from None
            check_no_room(_numbers(said), self.setting, state, error.later)
            return f"{said}: no room", state
        running = state.running if running is None else running
        if check is not None:
            check(state, cache)
        self._nobody_pinned_left(state, cache, said)
        memory, ages = list(state.memory), list(state.ages)
        for copy in copies:
            for step, table in running:
                if copy.slot in table:
                    raise ProtocolError(f"{said}: slot {copy.slot} is overwritten while step {step.number} may read it")
            if memory[copy.slot] <= GARBAGE:
                raise ProtocolError(f"{said}: two copies into slot {copy.slot} at once")
            memory[copy.slot] = GARBAGE - copy.cell
        before, after = state.cache.slots.coming.tolist(), cache.slots.coming.tolist()
        for was, now in zip(before, after, strict=True):
            if now != NOBODY and now != was:
                ages[now] = 0 if said == "a pass" else BY_FETCH
        waited = state.waited
        if "fails" in said:
            slot = int(said.split()[3])
            memory[slot] = NOBODY
            waited -= {int(state.cache.slots.owner[slot])}
        elif "are fetched" in said:
            waited |= set(np.flatnonzero(cache.slots.coming >= 0).tolist()) & set(_numbers(said))
        return said, State(cache, tuple(memory), running, state.pinned, tuple(ages), waited)

    def _copied(self, state: State, slot: int) -> tuple[str, State]:
        cache = state.cache.clone()
        cell = GARBAGE - state.memory[slot]
        cache.copied(np.array([slot]))
        memory = list(state.memory)
        memory[slot] = cell
        said = f"{cell} is in slot {slot}"
        return said, replace(state, cache=cache, memory=tuple(memory), waited=state.waited - {cell})

    def _tick(self, state: State) -> tuple[str, State]:
        cache = state.cache.clone()
        cache.tick()
        most = self.setting.rules.least_stay
        ages = tuple(age if age == BY_FETCH else min(age + 1, most) for age in state.ages)
        return "a tick", replace(state, cache=cache, ages=ages)

    def _pinned(self, state: State, cell: int) -> tuple[str, State]:
        cache = state.cache.clone()
        if cell in state.pinned:
            cache.unpin(np.array([cell]))
            return f"{cell} is unpinned", replace(state, cache=cache, pinned=state.pinned - {cell})
        cache.pin(np.array([cell]))
        return f"{cell} is pinned", replace(state, cache=cache, pinned=state.pinned | {cell})

    # What must hold of events.

    def _nobody_pinned_left(self, state: State, cache: SlotCache, said: str) -> None:
        for cell in state.pinned:
            if state.cache.slots.table[cell] >= 0 and cache.slots.table[cell] < 0:
                raise ProtocolError(f"{said}: {cell} is evicted, and pinned")


def _numbers(said: str) -> tuple[int, ...]:
    """The cells that an event names first."""
    return tuple(int(word) for word in said.split(" are")[0].strip("()").replace(",", " ").split())


def _ends(step: Step, cells: tuple[int, ...] | None, cache: SlotCache) -> tuple[Copy, ...]:
    if cells is None:
        return cache.end(step)
    different, rows = np.unique(np.array(cells, np.intp), return_counts=True)
    return cache.end(step, different, rows.astype(np.int64))


def _fetched(cells: tuple[int, ...], cache: SlotCache) -> tuple[Copy, ...]:
    return cache.fetch(np.array(cells))


def _may_come(cell: int, cache: SlotCache) -> tuple[Copy, ...]:
    return cache.fetch_some(np.array([cell]))


def _fails(slot: int, cache: SlotCache) -> tuple[Copy, ...]:
    cache.copy_failed(np.array([slot]))
    return ()
