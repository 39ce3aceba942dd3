import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.experts.placement import explain, plan_file
from serving.experts.placement.host import Node, host
from serving.experts.placement.made_up import model, one_node, popularity, two_nodes
from serving.experts.placement.plan import ColdMode, Plan, Sharding, checked, make
from serving.experts.placement.problem import PlanError

# The same cases in every run.
settings.register_profile("moet", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moet")

CELL = 3 * 256 * 128 * 17 // 32
W2 = 3 * 256 * 128 * 9 // 32


def plan_of(budgets: list[int], **options: Any) -> Plan:
    given_ = model()
    share = popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    form[:, 8:] = 1
    where = options.pop("host", one_node(len(budgets)))
    return make(given_, where, share, form, ["mxfp4", "w2"], budgets, **options)


@given(
    st.lists(st.integers(0, 12 * CELL), min_size=1, max_size=4),
    st.integers(0, 3),
    st.sampled_from(("whole", "split")),
    st.sampled_from(("fetch", "cpu")),
    st.one_of(st.none(), st.integers(0, 20 * CELL)),
    st.lists(st.integers(0, 8 * CELL), max_size=2),
)
@settings(max_examples=80)
def test_rules_of_every_plan(
    budgets: list[int], floor: int, sharding: Sharding, cold: ColdMode, ram: int | None, banks: list[int]
) -> None:
    try:
        plan = plan_of(
            budgets, floors=floor, sharding=sharding, cold=cold, host=one_node(len(budgets), ram, None, tuple(banks))
        )
    except PlanError as error:
        if "floors" not in str(error):
            raise
        return
    for one, used in zip(plan.locations, plan.used.tolist(), strict=True):
        assert one.budget is None or used <= one.budget
    assert int(plan.cells.sum()) == 64 and (plan.hot.sum(axis=1) >= floor).all()
    for rank in range(plan.ranks):
        for row in range(4):
            seen = plan.row_map(rank, row)
            together = np.concatenate((seen.hot, seen.peer, seen.cold))
            assert sorted(together.tolist()) == list(range(16))
        assert plan.vram(rank) <= budgets[rank]
    if sharding == "whole":
        hot = [plan.row_map(rank, row).hot for rank in range(plan.ranks) for row in range(4)]
        assert sum(len(one) for one in hot) == plan.hot.sum()
        assert sum(plan.vram(rank) for rank in range(plan.ranks)) == plan.whole_bytes[plan.hot].sum()
        in_ram = sum(used for one, used in zip(plan.locations, plan.used.tolist(), strict=True) if one.tier == "ram")
        assert sum(plan.ram(rank) for rank in range(plan.ranks)) == in_ram
    # A plan that was written is the plan that is read.
    text = plan_file.encode(plan, {"x": 1})
    back, evidence = plan_file.decode(text, "p")
    assert evidence == {"x": 1} and plan_file.encode(back, {"x": 1}) == text
    assert (back.where == plan.where).all() and (back.runs_on == plan.runs_on).all()


def test_tiers_in_order_of_share_per_byte() -> None:
    plan = plan_of([4 * CELL] * 2, host=one_node(2, 10 * CELL, 100 * CELL, (4 * CELL,)))
    assert [one.tier for one in plan.locations] == ["gpu", "gpu", "peer", "ram", "nvme"]
    assert (plan.cells > 0).all() and plan.problem is not None
    density = plan.problem.share / plan.whole_bytes
    tier = np.array([0, 0, 1, 2, 3])[plan.where]
    for form in (0, 1):
        of = plan.form == form
        for above in range(3):
            upper, lower = density[of & (tier == above)], density[of & (tier == above + 1)]
            assert not len(upper) or not len(lower) or upper.min() >= lower.max()


def test_what_lacks_is_said_in_bytes() -> None:
    given_, share = model(), popularity(4, 16)
    form = np.zeros(share.shape, np.int64)
    with pytest.raises(PlanError) as error:
        make(given_, one_node(1, 10 * CELL + 5, 3 * CELL - 1), share, form, ["mxfp4"], [50 * CELL])
    words = str(error.value)
    # 64 cells: 50 in GPU memory, 10 in RAM, 4 for NVMe, which has a byte less than 3.
    assert (
        f"4 cells of {4 * CELL:,} bytes find no room in RAM, and NVMe has {3 * CELL - 1:,}: {CELL + 1:,} bytes" in words
    )
    assert make(given_, one_node(1, 10 * CELL, 4 * CELL), share, form, ["mxfp4"], [50 * CELL]).cells.tolist() == [
        50,
        10,
        4,
    ]


def test_slices_are_rounded_up() -> None:
    plan = plan_of([16 * CELL] * 5, sharding="split")
    assert CELL % 5 and int(plan.slice_bytes[0, 0]) == CELL // 5 + 1
    assert plan.vram(3) == int(plan.slice_bytes[plan.hot].sum()) and plan.hot.all()
    short = plan_of([int(plan.slice_bytes.sum()) - 1] * 5, sharding="split")
    assert not short.hot.all()


def test_ranks_read_from_their_own_node() -> None:
    plan = plan_of([2 * CELL] * 4, host=two_nodes(4))
    for index, one in enumerate(plan.locations):
        if one.tier == "ram":
            assert set(plan.runs_on[plan.where == index].tolist()) == set(one.ranks)
    # A node without a GPU near it serves every rank.
    far = host([Node("0-7", (), 100 * CELL), Node("8-15", (0, 1), 0)], 2, (), None)
    plan = plan_of([2 * CELL] * 2, host=far)
    assert plan.cells[2] > 0 and set(plan.runs_on[plan.where == 2].tolist()) == {0, 1}


def test_plans_are_the_same_bytes_and_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    plan_file.write(path, plan_of([4 * CELL] * 2), {})
    first = path.read_bytes()
    plan_file.write(path, plan_of([4 * CELL] * 2), {})
    assert path.read_bytes() == first and first.endswith(b"}\n")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        plan_file.write(path, plan_of([5 * CELL] * 2), {})
    assert path.read_bytes() == first and [one.name for one in tmp_path.iterdir()] == ["plan.json"]


def broken(change: Any) -> bytes:
    data = json.loads(plan_file.encode(plan_of([4 * CELL] * 2, floors=1), {}))
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema="moet.plan-experts.v0"), "schema: expected 'moet.plan-experts.v1'"),
        (lambda d: d.pop("layers"), "is no plan: KeyError 'layers'"),
        (lambda d: d["layers"].pop(), "layers: expected those of the model"),
        (lambda d: d["layers"].reverse(), "layers: expected those of the model"),
        (lambda d: d["layers"][1]["where"].pop(), "layer 4: where: expected a number for each of 16 experts"),
        (lambda d: d["layers"][1]["where"].__setitem__(0, 9), "layer 4: where: expected whole numbers from 0 to 3"),
        (lambda d: d["layers"][1]["where"].__setitem__(0, 1.0), "layer 4: where: expected whole numbers"),
        (
            lambda d: d["layers"][1]["runs_on"].__setitem__(0, 2),
            "layer 4: runs_on: expected whole numbers from -1 to 1",
        ),
        (lambda d: d["layers"][1]["format"].__setitem__(0, -1), "layer 4: format: expected whole numbers from 0 to 1"),
        (lambda d: d["layers"][0].update(floor=17), "floor: expected whole numbers from 0 to 16"),
        (lambda d: d["layers"][0].update(floor=16), "layer 3: "),
        (lambda d: d["layers"][0].update(where=[2] * 16), "bytes or cells do not agree"),
        (lambda d: d["locations"][0].update(bytes=1), "bytes or cells do not agree"),
        (lambda d: d["locations"][0].update(budget=1), "location 0 (gpu): "),
        (lambda d: d["locations"][0].update(budget="1"), "budget: expected bytes, found '1'"),
        (lambda d: d["locations"].pop(), "expected GPUs, banks, nodes' RAM and NVMe"),
        (lambda d: d["locations"][0].update(tier="tape"), "expected one GPU memory a rank"),
        (lambda d: d["formats"][0].update(bytes=1), "formats: the bytes do not agree with the geometry"),
        (lambda d: d["formats"][0].update(name="int4"), "formats: expected some of w2"),
        (lambda d: d["model"].update(experts=0), "model: expected whole numbers from 1 on"),
        (lambda d: d["model"].update(hidden=256.0), "model: expected whole numbers from 1 on"),
        (lambda d: d["host"]["nodes"][0].update(ranks=[0]), "expected each of ranks 0 to 1 near one node"),
        (lambda d: d.update(ranks=10**9), "ranks: expected 1 to 4096"),
        (lambda d: d.update(cold="warm"), "fetch or cpu"),
        (lambda d: d.update(evidence=None), "evidence: expected an object"),
    ],
)
def test_plans_that_were_changed_are_refused(change: Any, words: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_file.decode(broken(change), "p.json")
    assert words in str(error.value) and str(error.value).startswith("p.json: ")


def test_plans_that_were_cut_are_refused() -> None:
    text = plan_file.encode(plan_of([4 * CELL] * 2), {})
    for end in range(0, len(text) - 2, 97):
        with pytest.raises(PlanError):
            plan_file.decode(text[:end], "p.json")
    with pytest.raises(PlanError, match="schema"):
        plan_file.decode(b"[1]", "p.json")


def test_cell_that_runs_elsewhere_is_refused() -> None:
    plan = plan_of([4 * CELL] * 2)
    runs_on = plan.runs_on.copy()
    runs_on[plan.where == 0] = 1
    with pytest.raises(PlanError, match="a cell in the memory of rank 0 runs elsewhere"):
        checked(replace(plan, runs_on=runs_on))


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
    assert f"GPU budgets larger by {lacking - 7:,} bytes" in found.moves[-1]
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
