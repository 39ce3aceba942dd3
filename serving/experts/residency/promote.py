"""Simulates delta slots: nobody waits for them; who has none is computed from the base, in its precision."""

from collections import deque

import numpy as np
import numpy.typing as npt

from .cache import SlotCache
from .demand import Outcome
from .link import Link
from .policies import Policy
from .pool import Pool
from .requests import Requests
from .rules import Rules
from .slots import NOBODY, Cells


class _Copies:
    """Copies on one link, one after the other."""

    def __init__(self, link: Link, slot_bytes: int) -> None:
        self._each, self._free_at = link.copy_seconds(slot_bytes), 0.0
        self._under_way: deque[tuple[float, int]] = deque()

    def add(self, now: float, ids: list[int]) -> None:
        for one in ids:
            self._free_at = max(self._free_at, now) + self._each
            self._under_way.append((self._free_at, one))

    def done(self, now: float) -> Cells:
        found = []
        while self._under_way and self._under_way[0][0] <= now:
            found.append(self._under_way.popleft()[1])
        return np.array(found, np.intp)


class _Counts:
    def __init__(self, requests: Requests) -> None:
        self._experts = requests.experts
        self.asked, self.missed, self.layers = np.zeros((3, requests.steps), np.int64)

    def add(self, step: int, cells: Cells, missed: Cells) -> None:
        self.asked[step], self.missed[step] = cells.size, missed.size
        if missed.size:
            self.layers[step] = np.count_nonzero(np.diff(missed // self._experts)) + 1

    def outcome(self, copies: int) -> Outcome:
        return Outcome(self.asked, self.missed, self.layers, copies, np.ones_like(self.asked))


def simulate_ours(
    requests: Requests, pool: Pool, rules: Rules, link: Link, steps_a_tick: int, steps_a_pass: int
) -> Outcome:
    """Runs the cache that serves (cache.SlotCache), with passes and copies beside the steps, from empty slots."""
    counts, cache, copies = _Counts(requests), SlotCache(pool, rules), _Copies(link, pool.bytes_a_slot)
    for step, cells, rows in requests.each():
        now = step * link.step
        done = copies.done(now)
        if done.size:
            cache.copied(done)
        if step and step % steps_a_tick == 0:
            cache.tick()
        if step and step % steps_a_pass == 0:
            copies.add(now, [copy.slot for copy in cache.promote()])
        running = cache.begin()
        counts.add(step, cells, cache.missing(cells))
        copies.add(now, [copy.slot for copy in cache.end(running, cells, rows)])
    return counts.outcome(cache.promoted)


def simulate(
    requests: Requests, pool: Pool, policy: Policy, link: Link, budget: int, steps_a_tick: int, steps_a_pass: int
) -> Outcome:
    """Runs a policy with the same passes, budget and link: whoever has more priority takes the slot of the least."""
    counts, copies, total = _Counts(requests), _Copies(link, pool.bytes_a_slot), 0
    resident, taken = np.zeros(pool.cells, np.bool_), np.zeros(pool.cells, np.bool_)
    for number, (step, cells, rows) in enumerate(requests.each()):
        now = step * link.step
        resident[copies.done(now)] = True
        if step and step % steps_a_tick == 0:
            policy.tick()
        if step and step % steps_a_pass == 0:
            coming = _pass(resident, taken, policy.priority, pool, budget)
            copies.add(now, coming)
            total += len(coming)
        counts.add(step, cells, cells[~resident[cells]])
        policy.asked(number, cells, rows)
    return counts.outcome(total)


def _pass(
    resident: npt.NDArray[np.bool_],
    taken: npt.NDArray[np.bool_],
    priority: npt.NDArray[np.int64],
    pool: Pool,
    budget: int,
) -> list[int]:
    candidates = np.flatnonzero(~taken & (priority > 0))
    candidates = candidates[np.argsort(-priority[candidates], kind="stable")]
    held = taken.reshape(len(pool.quotas), pool.width).sum(axis=1)
    coming: list[int] = []
    closed: set[int] = set()
    for cell in candidates.tolist():
        if len(coming) == budget or len(closed) == len(pool.quotas):
            break
        group = cell // pool.width
        if group in closed:
            continue
        if held[group] == pool.quotas[group]:
            of_group = slice(group * pool.width, (group + 1) * pool.width)
            owners = np.flatnonzero(resident[of_group]) + group * pool.width
            victim = int(owners[np.argmin(priority[owners])]) if owners.size else NOBODY
            if victim == NOBODY or priority[victim] >= priority[cell]:
                closed.add(group)
                continue
            resident[victim] = taken[victim] = False
        else:
            held[group] += 1
        taken[cell] = True
        coming.append(cell)
    return coming


def bound(requests: Requests, pool: Pool, budget: int, steps_a_pass: int) -> Outcome:
    """At least as many hits as any policy can have, even one that knows the trace.

    Between two passes, a quota holds the cells that are asked for most often then, as if swaps took no time and no
    budget; but never more of them than passes so far can have brought in. Misses are spread over a window's steps
    as far as sums go: `missed` of single steps, and `missed_layers`, mean nothing.
    """
    windows = -(-requests.steps // steps_a_pass)
    owner = np.repeat(requests.step, np.diff(requests.begins)) // steps_a_pass
    groups, copies = len(pool.quotas), 0
    asked = np.bincount(np.repeat(requests.step, np.diff(requests.begins)), minlength=requests.steps)
    missed = np.zeros(requests.steps, np.int64)
    starts = np.searchsorted(owner, np.arange(windows + 1))
    for window in range(windows):
        counts = np.bincount(requests.cells[starts[window] : starts[window + 1]], minlength=pool.cells)
        best = -np.sort(-counts.reshape(groups, pool.width), axis=1)
        best[np.arange(pool.width)[None, :] >= np.array(pool.quotas)[:, None]] = 0
        hits = int(-np.sort(-best.reshape(-1))[: budget * window].sum()) if budget * window else 0
        begin, end = window * steps_a_pass, min((window + 1) * steps_a_pass, requests.steps)
        missed[begin:end] = asked[begin:end]
        for step in range(begin, end):
            taken = min(hits, int(missed[step]))
            missed[step] -= taken
            hits -= taken
    return Outcome(asked.astype(np.int64), missed, missed, copies, np.ones(requests.steps, np.int64))
