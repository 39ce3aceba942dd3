"""Delta slots in simulation: budget, link and bound."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from serving.experts.residency import policies, promote, requests, synthetic
from serving.experts.residency.link import Link
from serving.experts.residency.pool import Kind, Pool
from serving.experts.residency.requests import Requests
from serving.experts.residency.rules import PRESETS, W2
from serving.experts.residency.synthetic import Synthetic
from serving.experts.residency.trace import RoutingTrace

LINK = Link(50e9, 1e-5, 0.01)


def small(steps: int = 600) -> Requests:
    return requests.from_trace(synthetic.make(Synthetic(steps=steps, layers=2, experts=16, top_k=2, drift=100.0)))


def pool(*quotas: int, each: int = 1000) -> Pool:
    return Pool(Kind.FP4_SCALED, 2, 16, quotas, each)


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("quotas", [(2, 5), (6,), (16, 16)])
def test_nobody_is_above_the_bound(preset: str, quotas: tuple[int, ...]) -> None:
    asked = small()
    rules = PRESETS[preset]
    best = promote.bound(asked, pool(*quotas), rules.promotions, 20).missed.sum()
    ours = promote.simulate_ours(asked, pool(*quotas), rules, LINK, 100, 20)
    found = [int(ours.missed.sum())]
    for name in ("lru", "lfu", "lfu-aged"):
        policy = policies.policy(name, asked)
        found.append(int(promote.simulate(asked, pool(*quotas), policy, LINK, rules.promotions, 100, 20).missed.sum()))
    assert 0 < best <= min(found)
    assert ours.copies <= rules.promotions * (600 // 20) and ours.asked.sum() == 600 * 4


def test_bound_of_what_is_known() -> None:
    """One layer, always expert 0, but for one window: a slot that is there from the second window on hits all that."""
    routed = np.zeros((40, 1, 1), np.uint16)
    routed[20:30] = 1
    asked = requests.from_trace(RoutingTrace(routed, np.arange(40), 2, (0,)))
    one = Pool(Kind.FP4_SCALED, 1, 2, (1,), 1)
    assert promote.bound(asked, one, 1, 10).missed.sum() == 10
    assert promote.bound(asked, one, 0, 10).missed.sum() == 40
    ours = promote.simulate_ours(asked, one, W2, Link(1e9, 0, 0.01), 100, 10)
    assert ours.missed.reshape(4, 10).sum(axis=1).tolist() == [10, 1, 10, 0], "there a step later; and 0 stays"


def most_hits(counts: np.ndarray[tuple[int, int], np.dtype[np.int64]], slots: int, budget: int) -> int:
    """The most hits of counts [windows, cells], by looking at every content of the slots in every window."""
    windows, cells = counts.shape
    contents = [frozenset(c) for size in range(slots + 1) for c in combinations(range(cells), size)]
    best = {frozenset[int](): 0}
    for window in range(1, windows):
        best = {
            after: max(hits for before, hits in best.items() if len(after - before) <= budget)
            + int(counts[window, list(after)].sum())
            for after in contents
            if any(len(after - before) <= budget for before in best)
        }
    return max(best.values())


def test_bound_is_one() -> None:
    """Against every possible way to swap, with copies that take no time."""
    rng, tight = np.random.default_rng(4), 0
    for slots, budget in ((1, 1), (2, 1), (3, 2), (3, 8)):
        for _ in range(20):
            routed = rng.choice(5, (60, 1, 1), p=rng.dirichlet(np.full(5, 0.5))).astype(np.uint16)
            asked = requests.from_trace(RoutingTrace(routed, np.arange(60), 5, (0,)))
            counts = np.stack([np.bincount(window, minlength=5) for window in routed.reshape(6, 10)])
            one = Pool(Kind.FP4_SCALED, 1, 5, (slots,), 1)
            hits = most_hits(counts, slots, budget)
            bound = 60 - int(promote.bound(asked, one, budget, 10).missed.sum())
            ours = promote.simulate_ours(asked, one, replace(W2, promotions=budget), Link(1e15 - 1, 0, 0.01), 30, 10)
            assert 60 - int(ours.missed.sum()) <= hits <= bound
            tight += hits == bound
    assert tight > 20


def test_copies_take_their_time() -> None:
    asked = small()
    fast = promote.simulate_ours(asked, pool(4, 4), W2, LINK, 100, 20)
    slow = promote.simulate_ours(asked, pool(4, 4, each=1000), W2, Link(1000.0, 0, 0.01), 100, 20)
    never = promote.simulate_ours(asked, pool(4, 4, each=1000), W2, Link(1.0, 0, 0.01), 100, 20)
    assert fast.missed.sum() < slow.missed.sum() < never.missed.sum() == asked.cells.size
    for link in (Link(1000.0, 0, 0.01), Link(1.0, 0, 0.01)):
        lru = promote.simulate(asked, pool(4, 4, each=1000), policies.policy("lru", asked), link, 8, 100, 20)
        assert lru.missed.sum() > fast.missed.sum()


def test_copies_come_one_after_the_other() -> None:
    """Two cells of a pass, each 5 steps on the link: one is there after 5 steps, the other after 10."""
    routed = np.broadcast_to(np.array([0, 1], np.uint16), (40, 1, 2))
    asked = requests.from_trace(RoutingTrace(routed, np.arange(40), 2, (0,)))
    two, link = Pool(Kind.FP4_SCALED, 1, 2, (2,), 1250), Link(1000.0, 0, 0.25)
    for found in (
        promote.simulate_ours(asked, two, W2, link, 100, 10),
        promote.simulate(asked, two, policies.policy("lfu", asked), link, 8, 100, 10),
    ):
        assert found.missed.tolist() == [2] * 15 + [1] * 5 + [0] * 20


def test_bound_keeps_to_the_budget() -> None:
    """Five cells at once, one a pass: after so many passes, so many hits a step at most."""
    routed = np.broadcast_to(np.arange(5, dtype=np.uint16), (60, 1, 5))
    asked = requests.from_trace(RoutingTrace(routed, np.arange(60), 5, (0,)))
    found = promote.bound(asked, Pool(Kind.FP4_SCALED, 1, 5, (5,), 1), 1, 10)
    assert found.missed.reshape(6, 10).sum(axis=1).tolist() == [50, 40, 30, 20, 10, 0]


def test_links_that_are_none() -> None:
    for arguments in ((0.0, 0.0, 0.01), (1.0, -1.0, 0.01), (1.0, 0.0, 0.0), (float("nan"), 0.0, 1.0)):
        with pytest.raises(ValueError, match="expected above 0"):
            Link(*arguments)
