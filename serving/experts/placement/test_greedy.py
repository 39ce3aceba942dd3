import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from serving.experts.placement import bound, greedy
from serving.experts.placement.made_up import popularity
from serving.experts.placement.problem import Ints, PlanError, Problem, problem

# Sizes of 2-bit, MXFP4 and BF16 cells of one geometry, in units of a block.
SIZES = (9, 17, 64)


@st.composite
def problems(draw: st.DrawFn, most_cells: int = 40, mixed: bool = True, most_bins: int = 4, floors: int = 2) -> Problem:
    layers = draw(st.integers(1, min(4, most_cells)))
    experts = draw(st.integers(1, max(1, most_cells // layers)))
    counts = np.array(
        draw(st.lists(st.integers(0, 1000), min_size=layers * experts, max_size=layers * experts)), np.float64
    ).reshape(layers, experts)
    counts[~counts.any(axis=1), 0] = 1
    sizes = draw(st.lists(st.sampled_from(SIZES if mixed else SIZES[1:2]), min_size=counts.size, max_size=counts.size))
    size = np.array(sizes, np.int64).reshape(counts.shape)
    budgets = draw(st.lists(st.integers(0, 300), min_size=1, max_size=most_bins))
    share = counts / counts.sum(axis=1, keepdims=True)
    case = problem(range(layers), share, size, budgets, draw(st.integers(0, min(floors, experts))))
    try:
        greedy.greedy(case)
    except PlanError:
        # Floors beyond the budgets have a test of their own.
        return problem(range(layers), share, size, budgets)
    return case


def reached(given_: Problem, found: greedy.Greedy) -> float:
    return float(given_.value[found.bin >= 0].sum())


def used(given_: Problem, found: greedy.Greedy) -> Ints:
    return np.array([given_.size[found.bin == index].sum() for index in range(len(given_.budgets))])


@given(problems())
@settings(max_examples=80)
def test_invariants_of_every_placement(case: Problem) -> None:
    found = greedy.greedy(case)
    assert (used(case, found) <= case.budgets).all()
    assert ((found.bin >= 0).sum(axis=1) >= case.floors).all()
    assert (used(case, found) + found.free == case.budgets).all()
    # Nothing that is outside would fit.
    outside = case.size[found.bin < 0]
    assert not outside.size or outside.min() > found.free.max()
    assert sorted(found.position.ravel().tolist()) == list(range(case.size.size))
    assert reached(case, found) <= bound.bound(case, reached(case, found)).share + 1e-9


@given(problems(most_cells=6, most_bins=2))
@settings(max_examples=30)
def test_bound_and_optimum_against_every_placement(case: Problem) -> None:
    found = greedy.greedy(case)
    best = bound.brute_force(case)
    assert reached(case, found) <= best + 1e-9
    assert bound.exact(case)[0] == pytest.approx(best, abs=1e-7)
    assert bound.relaxation(case) >= best - 1e-9
    assert bound.bound(case, reached(case, found)).share >= best - 1e-9


@given(problems(most_cells=6, mixed=False, most_bins=2, floors=0))
@settings(max_examples=30)
def test_cells_of_one_size_are_placed_best(case: Problem) -> None:
    found = greedy.greedy(case)
    assert reached(case, found) == pytest.approx(bound.brute_force(case), abs=1e-12)
    assert bound.bound(case, reached(case, found)).method == "optimum"


def test_cells_of_mixed_sizes_are_not() -> None:
    # The densest cell, of 9, keeps out the two of 17 that together are worth more than it and one of them.
    size = np.array([[9, 17, 17]])
    case = problem([0], np.array([[0.24, 0.38, 0.38]]), size, [34])
    found = greedy.greedy(case)
    assert reached(case, found) == pytest.approx(0.62)
    assert bound.brute_force(case) == pytest.approx(0.76)
    best = bound.bound(case, reached(case, found))
    assert best.share == pytest.approx(0.76, abs=1e-7) and best.method == "optimum"
    assert bound.relaxation(case) == pytest.approx(0.62 + 0.38 * 8 / 17)


@given(problems(), st.integers(1, 200))
@settings(max_examples=60)
def test_bound_rises_with_the_budget(case: Problem, more: int) -> None:
    wider = problem(case.layers, case.share, case.size, (case.budgets + more).tolist(), case.floors.tolist())
    assert bound.relaxation(wider) >= bound.relaxation(case) - 1e-12


@given(problems(), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_numbering_of_experts_does_not_matter(case: Problem, random: Random) -> None:
    renamed = list(range(case.experts))
    random.shuffle(renamed)
    other = problem(
        case.layers, case.share[:, renamed], case.size[:, renamed], case.budgets.tolist(), case.floors.tolist()
    )
    assert reached(other, greedy.greedy(other)) == pytest.approx(reached(case, greedy.greedy(case)), abs=1e-12)
    assert bound.relaxation(other) == pytest.approx(bound.relaxation(case), abs=1e-12)


@given(problems())
@settings(max_examples=60)
def test_relaxation_is_that_of_highs(case: Problem) -> None:
    cells, divisor = case.size.size, int(np.gcd.reduce(case.size.ravel()))
    layer = np.kron(np.eye(len(case.layers)), np.ones((1, case.experts)))
    found = optimize.linprog(
        -case.value.ravel(),
        A_ub=np.vstack([case.size.ravel()[None, :] / divisor, -layer]),
        b_ub=np.concatenate([[float((case.budgets // divisor).sum())], -case.floors.astype(np.float64)]),
        bounds=[(0, 1)] * cells,
    )
    assert found.status == 0
    assert bound.relaxation(case) == pytest.approx(-found.fun, abs=1e-7)


@given(st.lists(st.sampled_from(SIZES), min_size=1, max_size=60), st.lists(st.integers(0, 200), min_size=1, max_size=4))
@settings(max_examples=80)
def test_fill_takes_each_cell_in_turn_that_has_room(sizes: list[int], budgets: list[int]) -> None:
    size = np.array(sizes, np.int64)
    bins, free = np.full(len(size), -1), np.array(budgets, np.int64)
    greedy.fill(np.arange(len(size)), size, bins, free)
    # A skipped cell had no room when its turn came: not even beside those before it.
    for cell in np.flatnonzero(bins < 0):
        before = np.array([size[:cell][bins[:cell] == index].sum() for index in range(len(budgets))])
        assert (np.array(budgets) - before < size[cell]).all()
    assert (free >= 0).all()


def test_million_cells_keep_their_rules() -> None:
    share = popularity(2000, 500)
    random = np.random.Generator(np.random.PCG64(1))
    size = random.choice(np.array([9, 17, 64]) * 1_105_920, size=share.shape)
    budgets = [int(size.sum()) // 10 * k for k in (1, 2, 1, 1)]
    case = problem(range(2000), share, size, budgets, 3)
    found = greedy.greedy(case)
    assert (used(case, found) <= case.budgets).all() and (used(case, found) + found.free == case.budgets).all()
    assert ((found.bin >= 0).sum(axis=1) >= 3).all()
    assert case.size[found.bin < 0].min() > found.free.max()
    # In order but for the floors: whoever is outside comes after every cell of its size inside.
    for one in np.unique(size):
        inside = found.position[(found.bin >= 0) & (size == one) & ~found.floor]
        outside = found.position[(found.bin < 0) & (size == one)]
        assert not len(outside) or inside.max() < outside.min()
    best = bound.bound(case, reached(case, found))
    assert best.method == "linear relaxation" and reached(case, found) <= best.share <= reached(case, found) + 1e-4


def test_load_of_layers_is_spread() -> None:
    share = popularity(40, 384)
    size = np.full(share.shape, 17)
    found = greedy.greedy(problem(range(40), share, size, [17 * 40 * 60] * 4))
    by_rank = np.stack([np.where(found.bin == rank, share, 0).sum(axis=1) for rank in range(4)])
    assert [int((found.bin == rank).sum()) for rank in range(4)] == [2400] * 4
    # As even as a layer's hottest expert allows, or within a few percent.
    assert (by_rank.max(axis=0) <= np.maximum(share.max(axis=1), 1.05 * by_rank.mean(axis=0))).all()


def test_of_cells_that_are_worth_the_same_a_byte_the_smaller_comes_first() -> None:
    case = problem([0], np.array([[2 / 3, 1 / 3]]), np.array([[18, 9]]), [26])
    assert greedy.order(case).tolist() == [1, 0] and (greedy.greedy(case).bin >= 0).tolist() == [[False, True]]


def test_memories_of_different_sizes() -> None:
    share = popularity(3, 20)
    size = np.full(share.shape, 10)
    found = greedy.greedy(problem(range(3), share, size, [95, 0, 200, 9]))
    assert [int((found.bin == rank).sum()) for rank in range(4)] == [9, 0, 20, 0]


def test_floor_takes_the_smallest_where_the_hottest_do_not_fit() -> None:
    size = np.array([[64, 9], [64, 9]])
    case = problem([0, 1], np.array([[0.99, 0.01], [0.99, 0.01]]), size, [82], 1)
    found = greedy.greedy(case)
    # Both of 9 for the floor, and what is left takes one of 64.
    assert (found.bin >= 0).tolist() == [[True, True], [False, True]] and found.free.tolist() == [0]
    assert found.floor.tolist() == [[False, True], [False, True]]


def test_floor_takes_the_hottest_where_they_fit() -> None:
    size = np.array([[64, 9], [64, 9]])
    found = greedy.greedy(problem([0, 1], np.array([[0.99, 0.01], [0.99, 0.01]]), size, [128], 1))
    assert (found.bin >= 0).tolist() == found.floor.tolist() == [[True, False], [True, False]]


def test_floors_of_mixed_sizes_leave_no_holes() -> None:
    found = greedy.greedy(problem([0, 1], np.ones((2, 1)), np.array([[64], [9]]), [64, 9], 1))
    assert found.bin.tolist() == [[0], [1]]


def test_relaxation_counts_whole_cells_of_each_memory() -> None:
    case = problem([0], np.full((1, 4), 0.25), np.full((1, 4), 17), [33, 33])
    assert bound.relaxation(case) == 0.5


def test_floors_lower_the_bound() -> None:
    share = np.array([[0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01]])
    size = np.full(share.shape, 10)
    for floor, best in ((0, 0.97 + 0.75), (2, 0.97 + 0.01 + 0.5)):
        case = problem([0, 1], share, size, [40], floor)
        assert bound.relaxation(case) == pytest.approx(best / 2, abs=1e-9)
        assert reached(case, greedy.greedy(case)) == pytest.approx(best / 2)


def test_impossible_floors_say_how_many_bytes_lack() -> None:
    size = np.full((3, 4), 10)
    with pytest.raises(PlanError, match=r"floors: 6 cells of 60 bytes at least, budgets of 45 bytes: 15 bytes of GPU"):
        greedy.greedy(problem(range(3), popularity(3, 4), size, [25, 20], 2))
    # Enough in sum, but not in one piece.
    with pytest.raises(PlanError, match="do not pack into budgets of 5, 5 bytes; raise one by a cell, 10 bytes"):
        greedy.greedy(problem([0], popularity(1, 4), size[:1], [5, 5], 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": math.nan}, "share of layer 7, expert 1: is no number"),
        ({"share": math.inf}, "share of layer 7, expert 1: is no number"),
        ({"share": -0.5}, "share of layer 7, expert 1: is negative"),
        ({"layers": [7, 7]}, "layers: 7 is there twice"),
        ({"layers": [7]}, "shares: expected a row for each of 1 layers"),
        ({"size": 0}, "sizes: every cell must have one byte or more"),
        ({"size": 2**53}, "sizes: all cells together overflow"),
        ({"budgets": [-1]}, "budget of rank 0: expected 0 to"),
        ({"budgets": []}, "budgets: expected one rank or more"),
        ({"budgets": [2**52, 2**52]}, "budgets: together they overflow"),
        ({"floors": [0, 5]}, "floor of layer 8: expected 0 to 4 experts, found 5"),
        ({"floors": [1]}, "floors: expected one a layer, 2, found 1"),
    ],
)
def test_terms_that_break(change: dict[str, Any], words: str) -> None:
    terms: dict[str, Any] = {"layers": [7, 8], "budgets": [100], "floors": 0, **change}
    share, size = popularity(2, 4), np.full((2, 4), 10)
    if isinstance(change.get("share"), float):
        share[0, 1] = change["share"]
    if isinstance(change.get("size"), int):
        size[1, 2] = change["size"]
    with pytest.raises(PlanError, match=words):
        problem(terms["layers"], share, size, terms["budgets"], terms["floors"])


def test_layer_of_zeros() -> None:
    share = popularity(2, 4)
    share[1] = 0
    with pytest.raises(PlanError, match="shares of layer 8: all are zero"):
        problem([7, 8], share, np.full((2, 4), 10), [100])


def test_nothing_fits() -> None:
    case = problem([0], popularity(1, 4), np.full((1, 4), 10), [0, 9])
    found = greedy.greedy(case)
    assert (found.bin == greedy.COLD).all() and bound.bound(case, 0.0).share == 0
