"""Who makes way for a fetch, written down apart from the cache that decides it."""

import numpy as np

from ..cache import SlotCache
from ..slots import FREE, READY, RETIRED
from .explorer import ProtocolError
from .slots_state import Setting, State


def check_fetch(cells: tuple[int, ...], setting: Setting, state: State, cache: SlotCache) -> None:
    """Raises ProtocolError where a fetch that led from a state to a cache did not keep the rules."""
    old = state.cache.slots
    for cell in cells:
        if cache.slots.table[cell] < 0 and cache.slots.coming[cell] < 0:
            raise ProtocolError(f"{cell} was to be fetched, and does not come")
    for cell in state.waited:
        if cache.slots.table[cell] < 0 and cache.slots.coming[cell] < 0:
            raise ProtocolError(f"{cell}, for which a step waits, is sent away for {cells}")
    came = [cell for cell in cells if old.table[cell] < 0 and old.coming[cell] < 0]
    into = [int(cache.slots.coming[cell]) for cell in came]
    for group in {cell // setting.pool.width for cell in came}:
        order = sorted(_order(setting, state, slot) for slot in _usable(group, cells, state))
        taken = sorted(_order(setting, state, slot) for slot in into if old.group[slot] == group)
        if taken != order[: len(taken)]:
            raise ProtocolError(f"{cells} send slots {taken} away, expected {order[: len(taken)]}")


def check_may_come(cell: int, setting: Setting, state: State, cache: SlotCache) -> None:
    """The same of a fetch that need not be."""
    old, heat = state.cache.slots, state.cache.heat
    if old.table[cell] >= 0 or old.coming[cell] >= 0:
        return
    free = [slot for slot in _group(cell // setting.pool.width, state) if old.state[slot] == FREE]
    warmth = _warmth(state, cell)
    weighed = [
        (_warmth(state, int(old.owner[slot])), slot)
        for slot in _usable(cell // setting.pool.width, (cell,), state)
        if old.state[slot] == READY
        and (not heat.seen[old.owner[slot]] or _warmth(state, int(old.owner[slot])) < warmth)
    ]
    expected = free[0] if free else min(weighed)[1] if weighed else -1
    if cache.slots.coming[cell] != expected:
        raise ProtocolError(f"{cell} may come to slot {cache.slots.coming[cell]}, expected {expected}")


def check_no_room(cells: tuple[int, ...], setting: Setting, state: State, later: bool) -> None:
    """Raises ProtocolError where a fetch was refused though there is room, or with the wrong hope for later."""
    slots = state.cache.slots
    absent = [cell for cell in cells if slots.table[cell] < 0 and slots.coming[cell] < 0]
    for group in sorted({cell // setting.pool.width for cell in absent}):
        if len(_usable(group, cells, state)) >= sum(cell // setting.pool.width == group for cell in absent):
            continue
        hope = [
            slot
            for slot in _group(group, state)
            if slots.state[slot] != READY
            and slot not in _usable(group, cells, state)
            and slots.owner[slot] not in state.pinned.union(cells)
        ]
        if later != bool(hope):
            raise ProtocolError(f"{cells} find no room, with later {later}, expected {bool(hope)}")
        return
    raise ProtocolError(f"{cells} are refused, though there is room")


def _group(group: int, state: State) -> list[int]:
    found: list[int] = np.flatnonzero(state.cache.slots.group == group).tolist()
    return found


def _usable(group: int, cells: tuple[int, ...], state: State) -> list[int]:
    """Slots of a quota that a fetch of `cells` may take."""
    slots, found = state.cache.slots, []
    for slot in _group(group, state):
        what, owner = slots.state[slot], int(slots.owner[slot])
        waited = what == RETIRED and not slots.must[slot] and owner not in cells
        if what == FREE or waited or (what == READY and owner not in state.pinned.union(cells)):
            found.append(slot)
    return found


def _order(setting: Setting, state: State, slot: int) -> tuple[int, int, int]:
    """Free slots go first, those of whom nobody waits for next, then cold owners, then the others; by warmth."""
    slots, heat, rules = state.cache.slots, state.cache.heat, setting.rules
    if slots.state[slot] != READY:
        return int(slots.state[slot] == RETIRED), 0, slot
    owner = int(slots.owner[slot])
    is_cold = not heat.seen[owner] and (rules.cold_ticks is None or heat.cold[owner] >= rules.cold_ticks)
    return 2 if is_cold else 3, _warmth(state, owner), slot


def _warmth(state: State, cell: int) -> int:
    return int(state.cache.heat.heat[cell]) + 4 * int(state.cache.heat.recent[cell])
