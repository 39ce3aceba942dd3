"""What a promotion pass may do and must not leave undone, written down apart from the cache that does it."""

import numpy as np

from ..cache import SlotCache
from ..slots import FREE, READY
from .explorer import ProtocolError
from .slots_state import Setting, State


def check_pass(setting: Setting, state: State, cache: SlotCache) -> None:
    """Raises ProtocolError where a pass that led from a state to a cache did not keep the rules."""
    rules, width = setting.rules, setting.pool.width
    old, heat = state.cache.slots, state.cache.heat
    chosen = np.flatnonzero((cache.slots.coming >= 0) & (old.coming < 0)).tolist()
    if len(chosen) > rules.promotions:
        raise ProtocolError(f"a pass promotes {chosen}, more than {rules.promotions}")
    evicted: dict[int, int] = {}
    hot = (heat.heat > 0) & (heat.cold == 0) & (old.table < 0) & (old.coming < 0)
    for cell in chosen:
        if not hot[cell]:
            raise ProtocolError(f"a pass promotes {cell}, which nobody asked for in this window or the last")
        slot = int(cache.slots.coming[cell])
        if old.state[slot] == READY:
            _may_make_way(setting, state, int(old.owner[slot]), cell, slot)
            evicted[cell // width] = evicted.get(cell // width, 0) + 1
    if rules.swaps is not None and max(evicted.values(), default=0) > rules.swaps:
        raise ProtocolError(f"a pass evicts {evicted}, more than {rules.swaps} of a quota")
    for cell in np.flatnonzero(hot).tolist():
        if cell in chosen:
            continue
        colder = [other for other in chosen if other // width == cell // width and heat.heat[other] < heat.heat[cell]]
        idle = len(chosen) < rules.promotions and _finds_place(
            setting, state, cache, cell, evicted.get(cell // width, 0)
        )
        if colder or idle:
            raise ProtocolError(f"a pass leaves out {cell}, and takes {chosen}")


def _finds_place(setting: Setting, state: State, cache: SlotCache, cell: int, evicted: int) -> bool:
    """Whether after a pass there is a slot that it could have given to a cell."""
    rules, heat, slots = setting.rules, cache.heat, cache.slots
    for slot in np.flatnonzero(slots.group == cell // setting.pool.width).tolist():
        owner = int(slots.owner[slot])
        if slots.state[slot] == FREE:
            return True
        if slots.state[slot] != READY or owner in state.pinned or (rules.swaps is not None and evicted >= rules.swaps):
            continue
        is_cold = rules.cold_ticks is not None and not heat.seen[owner] and heat.cold[owner] >= rules.cold_ticks
        if is_cold and heat.heat[owner] < heat.heat[cell]:
            return True
        stayed = slots.age[slot] >= rules.stay_ticks
        if rules.margin is not None and stayed and heat.heat[cell] > rules.margin * int(heat.heat[owner]):
            return True
    return False


def _may_make_way(setting: Setting, state: State, owner: int, cell: int, slot: int) -> None:
    rules, heat = setting.rules, state.cache.heat
    is_cold = rules.cold_ticks is not None and not heat.seen[owner] and heat.cold[owner] >= rules.cold_ticks
    hotter = rules.margin is not None and heat.heat[cell] > rules.margin * int(heat.heat[owner])
    if heat.heat[owner] >= heat.heat[cell] or not (is_cold or hotter):
        raise ProtocolError(f"a pass evicts {owner} for {cell}, against the rules")
    if state.ages[slot] < rules.least_stay:
        raise ProtocolError(f"a pass evicts {owner} after {state.ages[slot]} ticks, expected {rules.least_stay}")
