import contextlib
import re
from dataclasses import replace

import numpy as np
import pytest

from serving.experts.placement import explain
from serving.experts.placement.made_up import CELL, model, one_node, plan_of, popularity
from serving.experts.placement.plan import Plan, make
from serving.experts.placement.problem import PlanError


def test_every_cell_is_explained() -> None:
    plan = plan_of([4 * CELL] * 2, floors=1, host=one_node(2, 10 * CELL, None, (2 * CELL,)))
    for row, layer in enumerate(plan.model.layers):
        for expert in range(16):
            found = explain.explain(plan, layer, expert)
            assert found.moves and f"number {found.position:,} of 64" in found.why
            assert found.lives.startswith(("memory of rank", "memory of bank", "RAM of node 0", "NVMe"))
            assert ("floor" in found.why.split(";")[0]) == bool(plan.chosen and plan.chosen.floor[row, expert])


def test_explanation_holds() -> None:
    plan = plan_of([4 * CELL] * 2)
    assert plan.problem is not None and plan.chosen is not None
    share = plan.problem.share
    row, expert = (int(one) for one in np.argwhere(~plan.hot & (plan.form == 0))[0])
    least = share[plan.hot & (plan.form == 0)].min()
    found = explain.explain(plan, plan.model.layers[row], expert)
    assert f"a share above {least:.4%}" in found.moves[0]
    # With a share above that it is in GPU memory, with one below it is not.
    for factor, there in ((1.01, True), (0.99, False)):
        other = share.copy()
        other[row, expert] = least * factor
        case = make(plan.model, plan.host, other, plan.form, plan.formats, [4 * CELL] * 2)
        assert bool(case.hot[row, expert]) == there


def test_explanation_of_a_budget_holds() -> None:
    given_, share = model(), popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    plan = make(given_, one_node(1), share, form, ["mxfp4"], [10 * CELL])
    row, expert = (int(one) for one in np.argwhere(~plan.hot)[5])
    assert plan.chosen is not None
    lacking = (int(plan.chosen.position[row, expert]) + 1 - 10) * CELL
    for more, there in ((lacking, True), (lacking - 1, False)):
        wider = make(given_, one_node(1), share, form, ["mxfp4"], [10 * CELL + more])
        assert bool(wider.hot[row, expert]) == there
    # What is free already counts.
    wide = make(given_, one_node(1), share, form, ["mxfp4"], [10 * CELL + 7])
    found = explain.explain(wide, wide.model.layers[row], expert)
    assert f"the GPU budget of rank 0 larger by {lacking - 7:,} bytes" in found.moves[-1]
    row, expert = (int(one) for one in np.argwhere(plan.hot)[3])
    behind = (10 - int(plan.chosen.position[row, expert])) * CELL
    assert f"smaller by {behind:,} bytes" in explain.explain(plan, plan.model.layers[row], expert).moves[-1]
    less = make(given_, one_node(1), share, form, ["mxfp4"], [10 * CELL - behind])
    assert not less.hot[row, expert]


def test_cells_that_are_not_there() -> None:
    plan = plan_of([4 * CELL])
    with pytest.raises(PlanError, match="layer 2: the model's MoE layers are 3 to 6"):
        explain.explain(plan, 2, 0)
    with pytest.raises(PlanError, match="expert 16: a layer has experts 0 to 15"):
        explain.explain(plan, 3, 16)
    with pytest.raises(PlanError, match="needs the counts"):
        explain.explain(replace(plan, problem=None), 3, 1)


def moved(words: str) -> int:
    """The bytes that a budget is to change by."""
    found = re.search(r"(?:larger|smaller) by ([0-9,]+) bytes", words)
    assert found is not None, words
    return int(found[1].replace(",", ""))


def remade(plan: Plan, budgets: list[int], floors: int) -> Plan:
    assert plan.problem is not None
    return make(plan.model, plan.host, plan.problem.share, plan.form, plan.formats, budgets, floors)


@pytest.mark.parametrize("floor", [0, 3])
def test_explanation_of_budgets_holds_with_several_memories(floor: int) -> None:
    given_, share = model(), popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    # In sum more than a cell is free, but in no memory.
    budgets = [4 * CELL + part * CELL // 10 for part in (9, 8, 7, 6)]
    plan = make(given_, one_node(4), share, form, ["mxfp4"], budgets, floor)
    assert plan.chosen is not None and int(plan.chosen.free.sum()) > CELL > int(plan.chosen.free.max())
    for row, expert in np.argwhere(~plan.hot).tolist():
        words = explain.explain(plan, given_.layers[row], expert).moves[-1]
        more = moved(words)
        assert "the GPU budget of rank 0 larger" in words and more > 0
        for by, there in ((more, True), (more - 1, False)):
            assert bool(remade(plan, [budgets[0] + by, *budgets[1:]], floor).hot[row, expert]) == there
    random = np.random.Generator(np.random.PCG64(0))
    for row, expert in np.argwhere(plan.hot & ~plan.chosen.floor).tolist():
        less = moved(explain.explain(plan, given_.layers[row], expert).moves[-1])
        behind = plan.hot & ~plan.chosen.floor & (plan.chosen.position >= plan.chosen.position[row, expert])
        assert less == int(behind.sum()) * CELL + int(plan.chosen.free.sum())
        for _ in range(5):
            # Whichever memories the bytes are taken from.
            taken, left = np.zeros(4, np.int64), less
            for rank in random.permutation(4).tolist():
                taken[rank] = min(budgets[rank], left, int(random.integers(less + 1)))
                left -= int(taken[rank])
            for rank in range(4):
                more = min(budgets[rank] - int(taken[rank]), left)
                taken[rank], left = taken[rank] + more, left - more
            with contextlib.suppress(PlanError):  # floors that do not fit any more
                assert not remade(plan, (np.array(budgets) - taken).tolist(), floor).hot[row, expert]


def test_explanation_where_everything_is_in_gpu_memory() -> None:
    given_, share = model(), popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    budget = 64 * CELL + 12345
    plan = make(given_, one_node(1), share, form, ["mxfp4"], [budget])
    (words,) = explain.explain(plan, given_.layers[1], 2).moves
    assert not remade(plan, [budget - moved(words)], 0).hot[1, 2]


def test_explanation_of_a_share_holds_beside_floors() -> None:
    given_, share = model(), popularity(4, 16)
    # A flat layer, whose floor keeps cells that are colder than those that came in by their turn.
    share[0] = np.linspace(1, 1.5, 16) / np.linspace(1, 1.5, 16).sum()
    form = np.zeros(share.shape, np.int64)
    plan = make(given_, one_node(1), share, form, ["mxfp4"], [14 * CELL], 3)
    for row, expert in np.argwhere(~plan.hot).tolist():
        words = explain.explain(plan, given_.layers[row], expert).moves[0]
        bar = float(words.removeprefix("a share above ").split("%")[0]) / 100
        for factor in (1.001, 0.999):
            other = share.copy()
            other[row, expert] = bar * factor
            case = make(given_, plan.host, other, form, plan.formats, [14 * CELL], 3)
            assert bool(case.hot[row, expert]) == (factor > 1)


def test_budgets_of_slices_are_each_ranks() -> None:
    plan = plan_of([4 * CELL] * 4, sharding="split")
    for hot in (True, False):
        row, expert = (int(one) for one in np.argwhere(plan.hot == hot)[0])
        words = explain.explain(plan, plan.model.layers[row], expert).moves[-1]
        assert words.startswith("the GPU budget of every rank ")


def test_explanation_of_a_floors_cell_holds() -> None:
    given_, share = model(), popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    plan = make(given_, one_node(1), share, form, ["mxfp4"], [14 * CELL], 3)
    assert plan.chosen is not None
    checked_ = 0
    for row, expert in np.argwhere(plan.chosen.floor).tolist():
        found = explain.explain(plan, given_.layers[row], expert)
        (words,) = [one for one in found.moves if one.startswith("a share below")]
        bar = float(words.removeprefix("a share below ").split("%")[0]) / 100
        other = share.copy()
        other[row, expert] = bar * 0.99
        case = make(given_, plan.host, other, form, plan.formats, [14 * CELL], 3)
        assert not case.hot[row, expert]
        checked_ += 1
    assert checked_ == 12
