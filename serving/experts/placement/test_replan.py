from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.experts.placement import replan
from serving.experts.placement.made_up import model, one_node, popularity
from serving.experts.placement.plan import Plan, Sharding, make
from serving.experts.placement.problem import Floats, PlanError

CELL = 3 * 256 * 128 * 17 // 32
STEPS = replan.WINDOW_STEPS


def plan_of(seed: int = 0, mixed: bool = False, sharding: Sharding = "whole", floors: int = 1) -> Plan:
    share = popularity(4, 16, seed)
    form = np.zeros(share.shape, np.int64)
    if mixed:
        form[:, ::2] = 1
    formats = ["mxfp4", "w2"][: 1 + mixed]
    return make(model(), one_node(2), share, form, formats, [10 * CELL] * 2, floors, sharding)


def shares_of(plan: Plan) -> Floats:
    assert plan.problem is not None
    return plan.problem.share


def test_nothing_moves_without_reason() -> None:
    plan = plan_of()
    # A plan keeps layers of different heat apart, which swaps within a layer do not undo.
    assert replan.swaps(plan, shares_of(plan), STEPS) == []
    assert replan.apply(plan, []).where.tolist() == plan.where.tolist()


def test_hot_newcomer_takes_the_coldest_place() -> None:
    plan = plan_of()
    share = shares_of(plan).copy()
    new = int(np.flatnonzero(~plan.hot[2])[0])
    share[2, new] = 0.9
    (found,) = replan.swaps(plan, share, STEPS)
    old = int(np.flatnonzero(plan.hot[2])[np.argmin(share[2][plan.hot[2]])])
    assert (found.layer, found.brought, found.dropped, found.rank) == (5, new, old, int(plan.runs_on[2, old]))
    assert found.bytes == CELL and found.brought_share == 0.9
    after = replan.apply(plan, [found])
    assert after.hot[2, new] and not after.hot[2, old] and after.used.tolist() == plan.used.tolist()


def test_margin_is_a_margin() -> None:
    plan = plan_of()
    share = shares_of(plan).copy()
    new, least = int(np.flatnonzero(~plan.hot[0])[0]), float(share[0][plan.hot[0]].min())
    share[0, new] = least * 1.25
    assert replan.swaps(plan, share, STEPS) == []
    share[0, new] = least * 1.2501
    assert len(replan.swaps(plan, share, STEPS)) == 1
    assert replan.swaps(plan, share, STEPS, margin=1.3) == []


def test_swap_that_gains_most_comes_first_whatever_its_format() -> None:
    plan = plan_of(mixed=True)
    for best in (0, 1):
        share = shares_of(plan).copy()
        news = [int(np.flatnonzero(~plan.hot[0] & (plan.form[0] == form))[0]) for form in (0, 1)]
        share[0, news[best]], share[0, news[1 - best]] = 0.9, 0.6
        first = [one for one in replan.swaps(plan, share, STEPS, per_layer=1) if one.layer == plan.model.layers[0]]
        assert [one.brought for one in first] == [news[best]]


def test_too_few_steps_and_too_many_swaps() -> None:
    plan = plan_of()
    upside_down = shares_of(plan).max() - shares_of(plan) + 1e-3
    assert replan.swaps(plan, upside_down, STEPS - 1) == []
    found = replan.swaps(plan, upside_down, STEPS)
    by_layer = np.unique([one.layer for one in found], return_counts=True)[1]
    assert len(found) == 8 and (by_layer == 2).all()
    assert replan.swaps(plan, upside_down, STEPS, per_layer=0) == []
    assert len(replan.swaps(plan, upside_down, STEPS, per_layer=5)) > 8


@given(
    st.integers(0, 1000), st.integers(0, 1000), st.booleans(), st.sampled_from(("whole", "split")), st.integers(1, 4)
)
@settings(max_examples=60)
def test_budgets_floors_and_the_swap_budget_hold(
    seed: int, other: int, mixed: bool, sharding: Sharding, per_layer: int
) -> None:
    plan, share = plan_of(seed, mixed, sharding), popularity(4, 16, other)
    found = replan.swaps(plan, share, STEPS, per_layer=per_layer)
    after = replan.apply(plan, found)
    assert after.used.tolist() == plan.used.tolist() and after.cells.tolist() == plan.cells.tolist()
    assert after.hot.sum(axis=1).tolist() == plan.hot.sum(axis=1).tolist()
    assert (np.unique([one.layer for one in found], return_counts=True)[1] <= per_layer).all() if found else True
    assert float((share * after.hot).sum()) >= float((share * plan.hot).sum())
    assert all(one.brought_share > 1.25 * one.dropped_share for one in found)


@given(st.integers(0, 1000), st.integers(0, 1000), st.booleans(), st.data())
@settings(max_examples=80)
def test_no_cell_goes_back_and_forth(seed: int, other: int, mixed: bool, data: st.DataObject) -> None:
    plan, share = plan_of(seed, mixed), popularity(4, 16, other)
    found = replan.swaps(plan, share, STEPS)
    after = replan.apply(plan, found)
    # The same routing, seen again with noise of less than the margin's square root.
    noise = np.array(data.draw(st.lists(st.floats(0.895, 1.117), min_size=64, max_size=64))).reshape(4, 16)
    again = replan.swaps(after, share * noise, STEPS)
    came, went = {(one.layer, one.brought) for one in found}, {(one.layer, one.dropped) for one in found}
    assert not came & {(one.layer, one.dropped) for one in again}
    assert not went & {(one.layer, one.brought) for one in again}


@given(st.integers(0, 1000), st.integers(0, 1000))
@settings(max_examples=30)
def test_the_same_routing_settles(seed: int, other: int) -> None:
    plan, share = plan_of(seed), popularity(4, 16, other)
    for _ in range(20):
        found = replan.swaps(plan, share, STEPS)
        if not found:
            break
        plan = replan.apply(plan, found)
    assert not found
    for row in range(4):
        outside, inside = share[row][~plan.hot[row]], share[row][plan.hot[row]]
        assert outside.max() <= 1.25 * inside.min()


def test_swaps_of_another_plan_are_refused() -> None:
    plan = plan_of()
    upside_down = shares_of(plan).max() - shares_of(plan) + 1e-3
    found = replan.swaps(plan, upside_down, STEPS)
    moved = replan.apply(plan, found)
    with pytest.raises(PlanError, match=r"swap of layer 3, .* is not one of this plan"):
        replan.apply(moved, found)
    with pytest.raises(PlanError, match="is not one of this plan"):
        replan.apply(plan, [replace(found[0], layer=99)])
    with pytest.raises(PlanError, match="is not one of this plan"):
        replan.apply(plan, [found[0], found[0]])
    mixed = plan_of(mixed=True)
    new = int(np.flatnonzero(~mixed.hot[0] & (mixed.form[0] == 0))[0])
    old = int(np.flatnonzero(mixed.hot[0] & (mixed.form[0] == 1))[0])
    with pytest.raises(PlanError, match="differ in format"):
        replan.apply(mixed, [replace(found[0], layer=3, brought=new, dropped=old)])


@pytest.mark.parametrize(
    "wrong", [{"margin": 0.9}, {"margin": np.nan}, {"margin": np.inf}, {"per_layer": -1}, {"steps": -1}]
)
def test_arguments_out_of_range(wrong: dict[str, Any]) -> None:
    plan = plan_of()
    with pytest.raises(PlanError, match="margin: expected 1 or more"):
        replan.swaps(plan, shares_of(plan), **{"steps": STEPS, **wrong})
    for bad in (np.full((4, 16), np.nan), np.full((4, 16), -1.0), np.ones((4, 15))):
        with pytest.raises(PlanError, match="shares: expected numbers from 0 on"):
            replan.swaps(plan, bad, STEPS)
