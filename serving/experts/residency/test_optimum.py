"""Belady's policy misses as little as any can: against every way to fill slots, on more than a thousand traces."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from serving.experts.residency import demand, policies, requests
from serving.experts.residency.cache import SlotCache
from serving.experts.residency.demand import simulate, simulate_ours
from serving.experts.residency.pool import Kind, Pool, PoolError
from serving.experts.residency.requests import Requests
from serving.experts.residency.rules import PRESETS
from serving.experts.residency.trace import RoutingTrace


def made(rng: np.random.Generator, steps: int, layers: int, experts: int, top_k: int, rows: int) -> RoutingTrace:
    """A random trace; popularity differs, so that policies do."""
    chance = rng.dirichlet(np.full(experts, 0.7), layers) + 1e-3
    chance /= chance.sum(axis=1, keepdims=True)
    routed = [
        [rng.choice(experts, top_k, replace=False, p=chance[layer]) for layer in range(layers)]
        for _ in range(steps * rows)
    ]
    return RoutingTrace(
        np.array(routed, np.uint16), np.repeat(np.arange(steps), rows).astype(np.int64), experts, tuple(range(layers))
    )


def least_misses(sets: Sequence[frozenset[int]], quotas: Sequence[int], width: int, filled: bool) -> int:
    """The fewest copies by which slots can hold each set in its turn, by looking at every content of the slots.

    Copies may be made at any time and for no reason; with `filled`, what is in the slots at first is free.
    """
    cells = sorted(set().union(*sets))
    contents = [
        frozenset(content)
        for size in range(len(cells) + 1)
        for content in combinations(cells, size)
        if all(sum(cell // width == group for cell in content) <= quota for group, quota in enumerate(quotas))
    ]
    cost = dict.fromkeys(contents, 0) if filled else {frozenset(): 0}
    for one in sets:
        cost = {
            after: min(so_far + len(after - before) for before, so_far in cost.items())
            for after in contents
            if one <= after
        }
    return min(cost.values())


def sets_of(asked: Requests) -> list[frozenset[int]]:
    return [frozenset(cells.tolist()) for _, cells, _ in asked.each()]


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize(
    ("layers", "experts", "top_k", "rows", "quotas"),
    [
        (1, 5, 1, 1, (2,)),
        (1, 5, 2, 1, (3,)),
        (1, 5, 1, 2, (2,)),
        (2, 3, 1, 1, (1, 2)),
        (2, 3, 1, 1, (3,)),
        (1, 6, 2, 2, (4,)),
    ],
)
def test_belady_is_the_optimum(
    layers: int, experts: int, top_k: int, rows: int, quotas: tuple[int, ...], filled: bool
) -> None:
    rng, better = np.random.default_rng(7), 0
    pool = Pool(Kind.BASE, layers, experts, quotas, 1)
    for _ in range(100):
        asked = requests.from_trace(made(rng, 12, layers, experts, top_k, rows))
        found = simulate(asked, pool, policies.policy("belady", asked), 3, filled)
        least = least_misses(sets_of(asked), quotas, pool.width, filled)
        assert int(found.missed.sum()) == found.copies == least
        others = [simulate(asked, pool, policies.policy(name, asked), 3).copies for name in ("lru", "lfu", "lfu-aged")]
        others.append(simulate_ours(asked, pool, PRESETS["ours"], 3).copies)
        assert filled or min(others) >= least
        better += min(others) > least
    assert better > 0


def test_belady_with_parts_of_steps() -> None:
    """Where a pool is forced, the sets are parts of steps, and it is the optimum of these."""
    rng = np.random.default_rng(3)
    for quotas in ((2, 2), (2,)):
        pool = Pool(Kind.BASE, 2, 3, quotas, 1)
        for _ in range(20):
            asked = requests.fitted(made(rng, 4, 2, 3, 1, 3), pool)
            found = simulate(asked, pool, policies.policy("belady", asked), 3)
            assert found.copies == least_misses(sets_of(asked), quotas, pool.width, False)
            assert int(found.sets.sum()) == asked.sets and (found.sets >= 1).all()


def plainly(asked: Requests, pool: Pool, name: str, steps_a_tick: int) -> list[int]:
    """Misses of each set with a policy written down as it is defined."""
    resident: list[set[int]] = [set() for _ in pool.quotas]
    priority: dict[int, int] = {}
    missed, ticks = [], 0
    for number, (step, cells, rows) in enumerate(asked.each()):
        while ticks < step // steps_a_tick:
            ticks += 1
            if name == "lfu-aged":
                priority = {cell: value // 2 for cell, value in priority.items()}
        missed.append(0)
        for cell in cells.tolist():
            if cell not in resident[cell // pool.width]:
                missed[-1] += 1
                resident[cell // pool.width].add(cell)
        for group, quota in enumerate(pool.quotas):
            others = sorted(resident[group] - set(cells.tolist()), key=lambda cell: (priority.get(cell, 0), cell))
            for cell in others[: max(0, len(resident[group]) - quota)]:
                resident[group].remove(cell)
        for cell, count in zip(cells.tolist(), rows.tolist(), strict=True):
            priority[cell] = number + 1 if name == "lru" else priority.get(cell, 0) + count * policies.UNIT
    return missed


@pytest.mark.parametrize("name", ["lru", "lfu", "lfu-aged"])
@pytest.mark.parametrize("quotas", [(5, 4, 7), (14,), (8, 8, 8)])
def test_policies_are_what_they_are_called(name: str, quotas: tuple[int, ...]) -> None:
    trace = made(np.random.default_rng(1), 120, 3, 8, 2, 2)
    pool = Pool(Kind.BASE, 3, 8, quotas, 1)
    asked = requests.fitted(trace, pool)
    found = simulate(asked, pool, policies.policy(name, asked), 20)
    missed = np.zeros(asked.steps, np.int64)
    np.add.at(missed, asked.step, plainly(asked, pool, name, 20))
    assert found.missed.tolist() == missed.tolist()


def test_ours_never_misses_what_is_resident() -> None:
    """Misses of the served cache: compulsory ones only where all fit; and as LFU-aged where nothing is ever cold."""
    trace = made(np.random.default_rng(2), 200, 2, 10, 2, 1)
    asked = requests.from_trace(trace)
    whole = Pool(Kind.BASE, 2, 10, (10, 10), 1)
    assert simulate_ours(asked, whole, PRESETS["ours"], 7).copies == np.unique(asked.cells).size
    small = Pool(Kind.BASE, 2, 10, (4, 4), 1)
    ours = simulate_ours(asked, small, PRESETS["dynamic"], 50).missed.sum()
    aged = simulate(asked, small, policies.policy("lfu-aged", asked), 50).missed.sum()
    assert abs(int(ours) - int(aged)) <= 0.05 * int(aged)


def test_ours_is_the_cache_with_its_rows_and_ticks() -> None:
    """Step by step against the cache driven by hand: rows count as often as they were routed, ticks come in time."""
    trace = made(np.random.default_rng(8), 60, 1, 8, 2, 3)
    asked = requests.from_trace(trace)
    pool, missed = Pool(Kind.BASE, 1, 8, (6,), 1), []
    cache = SlotCache(pool, PRESETS["ours"])
    for number in range(60):
        if number and number % 7 == 0:
            cache.tick()
        cells, rows = np.unique(trace.routed[trace.step == number].astype(np.intp), return_counts=True)
        missed.append(cache.missing(cells).size)
        cache.copied(np.array([copy.slot for copy in cache.fetch(cells)], np.intp))
        cache.end(cache.begin(), cells, rows.astype(np.int64))
    assert simulate_ours(asked, pool, PRESETS["ours"], 7).missed.tolist() == missed
    # A part of several ticks without a step is so many ticks.
    apart = replace(asked, step=asked.step * 21, steps=60 * 21)
    ticked = SlotCache(pool, PRESETS["ours"])
    found, missed = simulate_ours(apart, pool, PRESETS["ours"], 7).missed, []
    for number, (_, cells, rows) in enumerate(asked.each()):
        for _ in range(3 if number else 0):
            ticked.tick()
        missed.append(ticked.missing(cells).size)
        ticked.copied(np.array([copy.slot for copy in ticked.fetch(cells)], np.intp))
        ticked.end(ticked.begin(), cells, rows)
    assert found[::21].tolist() == missed


def test_layers_of_a_step_with_a_miss() -> None:
    trace = RoutingTrace(np.array([[[0], [0], [1]], [[0], [1], [1]]], np.uint16), np.array([0, 1]), 2, (0, 1, 2))
    asked = requests.from_trace(trace)
    pool = Pool(Kind.BASE, 3, 2, (1, 1, 1), 1)
    for found in (
        demand.simulate(asked, pool, policies.policy("lru", asked), 9),
        demand.simulate_ours(asked, pool, PRESETS["ours"], 9),
    ):
        assert (found.asked.tolist(), found.missed.tolist(), found.missed_layers.tolist()) == ([3, 3], [3, 1], [3, 1])


def test_parts_of_steps() -> None:
    """By layer where layers share too few slots, by halves of rows where a layer alone has too few."""
    trace = made(np.random.default_rng(5), 10, 3, 8, 2, 4)
    shared = requests.fitted(trace, Pool(Kind.BASE, 3, 8, (8,), 1))
    assert all(len({cell // 8 for cell in one}) == 1 for one in sets_of(shared))
    halves = requests.fitted(trace, Pool(Kind.BASE, 3, 8, (2, 8, 8), 1))
    for one in sets_of(halves):
        assert sum(cell < 8 for cell in one) <= 2
    for asked in (shared, halves):
        rows = np.bincount(asked.step[np.repeat(np.arange(asked.sets), np.diff(asked.begins))], weights=asked.rows)
        assert rows.tolist() == [4 * 3 * 2] * 10 and (np.diff(asked.step) >= 0).all()
    two = RoutingTrace(np.repeat([0, 1], 4).astype(np.uint16).reshape(8, 1, 1), np.zeros(8, np.int64), 2, (0,))
    assert sets_of(requests.fitted(two, Pool(Kind.BASE, 1, 2, (1,), 1))) == [{0}, {1}], "halves, and no more parts"
    with pytest.raises(PoolError, match="one row asks for 2"):
        requests.fitted(trace, Pool(Kind.BASE, 3, 8, (1, 8, 8), 1))
