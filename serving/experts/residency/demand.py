"""Simulates base slots: whatever a step asks for must come in before it can end."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .cache import SlotCache
from .policies import Policy
from .pool import Pool
from .requests import Requests
from .rules import Rules
from .slots import Cells

_CELL_BITS, _PRIORITY_BITS = 17, 39
_SHIFT = np.uint64(_CELL_BITS + _PRIORITY_BITS)


@dataclass(frozen=True)
class Outcome:
    """What steps found.

    Attributes:
        asked: int64 [steps], cells that a step asked for, once for each of its sets.
        missed: int64 [steps], those that were not resident when their set began.
        missed_layers: int64 [steps], layers with such a cell.
        copies: copies into slots.
        sets: int64 [steps], parts that the step was computed in.
    """

    asked: npt.NDArray[np.int64]
    missed: npt.NDArray[np.int64]
    missed_layers: npt.NDArray[np.int64]
    copies: int
    sets: npt.NDArray[np.int64]


class _Counts:
    """Collects an Outcome."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._asked, self._missed, self._layers, self._sets = np.zeros((4, requests.steps), np.int64)

    def add(self, step: int, asked: int, missed: Cells) -> None:
        self._asked[step] += asked
        self._sets[step] += 1
        if missed.size:
            self._missed[step] += missed.size
            self._layers[step] += np.count_nonzero(np.diff(missed // self._requests.experts)) + 1

    def outcome(self, copies: int) -> Outcome:
        return Outcome(self._asked, self._missed, self._layers, copies, self._sets)


def simulate(requests: Requests, pool: Pool, policy: Policy, steps_a_tick: int, filled: bool = False) -> Outcome:
    """Runs a policy from empty slots; the sets must fit (requests.fitted).

    With `filled`, whoever comes into a slot that was never used was there from the beginning: no miss, no copy.
    """
    counts, copies = _Counts(requests), 0
    quotas = np.array(pool.quotas)
    resident = np.zeros(pool.cells, np.bool_)
    held = np.zeros(len(pool.quotas), np.int64)
    ticked = 0
    for number, (step, cells, rows) in enumerate(requests.each()):
        while ticked < step // steps_a_tick:
            policy.tick()
            ticked += 1
        missed = absent = cells[~resident[cells]]
        if filled and absent.size:
            missed = absent[_rank(absent // pool.width) >= (quotas - held)[absent // pool.width]]
        counts.add(step, cells.size, missed)
        copies += missed.size
        if absent.size:
            held += np.bincount(absent // pool.width, minlength=held.size)
            if (held > quotas).any():
                resident[cells] = False
                out = _victims(resident, policy.priority, held - quotas, pool)
                resident[out] = False
                np.minimum(held, quotas, out=held)
            resident[cells] = True
        policy.asked(number, cells, rows)
    return counts.outcome(copies)


def _rank(groups: Cells) -> Cells:
    """The place of each entry among those of the same group; groups ascend."""
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    return np.arange(groups.size) - np.repeat(starts, np.diff(np.append(starts, groups.size)))


def _victims(
    resident: npt.NDArray[np.bool_], priority: npt.NDArray[np.int64], over: npt.NDArray[np.int64], pool: Pool
) -> Cells:
    """`over[group]` resident cells of each group, those with the least priority; of several the least number."""
    groups = np.flatnonzero(over > 0)
    if groups.size == len(over):
        cells = np.flatnonzero(resident)
    else:
        inside = np.flatnonzero(resident.reshape(len(over), pool.width)[groups])
        cells = groups[inside // pool.width] * pool.width + inside % pool.width
    keys = (cells // pool.width).astype(np.uint64) << np.uint64(_PRIORITY_BITS) | priority[cells].astype(np.uint64)
    keys = keys << np.uint64(_CELL_BITS) | cells.astype(np.uint64)
    keys.sort()
    starts = np.searchsorted(keys, groups.astype(np.uint64) << _SHIFT)
    counts = over[groups]
    places = np.arange(int(counts.sum())) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    return (keys[places] & np.uint64((1 << _CELL_BITS) - 1)).astype(np.intp)


def simulate_ours(requests: Requests, pool: Pool, rules: Rules, steps_a_tick: int) -> Outcome:
    """Runs the cache that serves (cache.SlotCache) from empty slots; the sets must fit (requests.fitted)."""
    counts, cache = _Counts(requests), SlotCache(pool, rules)
    ticked = 0
    for step, cells, rows in requests.each():
        while ticked < step // steps_a_tick:
            cache.tick()
            ticked += 1
        running = cache.begin()
        missed = cache.missing(cells)
        counts.add(step, cells.size, missed)
        if missed.size:
            cache.end(running)
            copies = cache.fetch(cells)
            cache.copied(np.array([copy.slot for copy in copies], np.intp))
            running = cache.begin()
        cache.end(running, cells, rows)
    return counts.outcome(cache.fetched)
