import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.experts.placement import plan_file
from serving.experts.placement.host import Node, host
from serving.experts.placement.made_up import CELL, model, one_node, plan_of, popularity, two_nodes
from serving.experts.placement.plan import ColdMode, Sharding, checked, make
from serving.experts.placement.problem import PlanError


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
    for row, where in enumerate(plan.where):
        seen = plan.row_map(1, row)
        assert [seen.hot.tolist(), seen.peer.tolist(), seen.cold.tolist()] == [
            np.flatnonzero(np.isin(where, tiers)).tolist() for tiers in ([1], [0, 2], [3, 4])
        ]
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


def test_bank_holds_every_slice_of_its_cells() -> None:
    plan = plan_of([4 * CELL] * 4, sharding="split", host=one_node(4, None, None, (5 * CELL,)))
    bank = plan.where == 1
    assert plan.locations[1].tier == "peer" and 5 <= int(bank.sum()) <= 9
    assert int(plan.used[1]) == int(plan.whole_bytes[bank].sum()) <= 5 * CELL


def test_ranks_read_from_their_own_node() -> None:
    plan = plan_of([2 * CELL] * 4, host=two_nodes(4))
    for index, one in enumerate(plan.locations):
        if one.tier == "ram":
            assert set(plan.runs_on[plan.where == index].tolist()) == set(one.ranks)
    # A node without a GPU near it serves every rank.
    far = host([Node("0-7", (), 100 * CELL), Node("8-15", (0, 1), 0)], 2, (), None)
    plan = plan_of([2 * CELL] * 2, host=far)
    assert plan.cells[2] > 0 and set(plan.runs_on[plan.where == 2].tolist()) == {0, 1}


def test_ranks_near_a_node_share_its_traffic() -> None:
    plan = plan_of([0, 0])
    assert plan.problem is not None
    traffic = plan.problem.share * plan.whole_bytes
    read = [float(traffic[plan.runs_on == rank].sum()) for rank in range(2)]
    assert read == [pytest.approx(sum(read) / 2, rel=0.03)] * 2


def test_nodes_without_a_limit_hold_all_in_proportion_to_their_ranks() -> None:
    nodes = host([Node("0-7", (0, 1, 2), None), Node("8-15", (3,), None)], 4, (), None)
    # 63 cells are left, which are no multiple of 4.
    plan = make(model(), nodes, popularity(4, 16), np.zeros((4, 16), np.int64), ["mxfp4"], [CELL, 0, 0, 0])
    *_, first, second, nvme = plan.cells.tolist()
    assert nvme == 0 and first + second == 63 and 46 <= first <= 49
    far = host([Node("0-7", (), None), Node("8-15", (), None), Node("", (0,), 0)], 1, (), None)
    plan = make(model(), far, popularity(4, 16), np.zeros((4, 16), np.int64), ["mxfp4"], [0])
    assert min(plan.cells[1:3]) >= 31


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


def huge(data: Any) -> None:
    """Sums of bytes that wrap around in 64 bits, stated as they would be."""
    data["model"].update(hidden=2**29, intermediate=2**28)
    for one in data["formats"]:
        one["bytes"] = 3 * 2**57 * {"mxfp4": 17, "w2": 9}[one["name"]] // 32


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
        (lambda d: d.update(evidence={"gap": math.nan}), "evidence: a number in it is NaN or infinite"),
        (lambda d: d.update(evidence={"updates": 3}), "evidence: updates: expected a list"),
        (lambda d: d["locations"][2].update(budget=2**40), "location 2 (ram): budget: expected None, as the host has"),
        (lambda d: d["host"].update(nvme=2**50), "location 3 (nvme): budget: expected 1125899906842624, as the host"),
        (lambda d: d["locations"][2].update(ranks=[0]), "location 2 (ram): ranks: expected (0, 1), as the host has it"),
        (lambda d: d["locations"][3].update(ranks=[0]), "location 3 (nvme): ranks: expected (), as the host has it"),
        (lambda d: d["locations"][1].update(index=1), "location 1 (gpu): index: expected 0"),
        (lambda d: d["host"]["nodes"][0].update(ram=1.5), "host: expected whole bytes, found 1.5"),
        (lambda d: d["host"].update(nvme=True), "host: expected whole bytes, found True"),
        (lambda d: d["model"].update(top_k=17), "model: top_k: expected 1 to 16 experts, found 17"),
        (lambda d: d["layers"][0]["runs_on"].__setitem__(d["layers"][0]["where"].index(2), -1), "runs on no rank"),
        (huge, "cells together overflow"),
        (lambda d: d.update(schema="x" * 9999), "schema: expected 'moet.plan-experts.v1', found 'xxx"),
    ],
)
def test_plans_that_were_changed_are_refused(change: Any, words: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_file.decode(broken(change), "p.json")
    assert words in str(error.value) and str(error.value).startswith("p.json: ")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_plans_that_were_cut_are_refused() -> None:
    text = plan_file.encode(plan_of([4 * CELL] * 2), {})
    for end in range(0, len(text) - 2, 97):
        with pytest.raises(PlanError):
            plan_file.decode(text[:end], "p.json")
    with pytest.raises(PlanError, match="schema"):
        plan_file.decode(b"[1]", "p.json")
    with pytest.raises(PlanError, match="evidence: a number in it is NaN or infinite"):
        plan_file.decode(text.replace(b'"evidence":{}', b'"evidence":{"gap":1e999}'), "p.json")


def test_cell_that_runs_elsewhere_is_refused() -> None:
    for split, rank in ((plan_of([4 * CELL] * 2, sharding="split"), 0), (plan_of([4 * CELL] * 2), -1)):
        runs_on = split.runs_on.copy()
        runs_on[split.where == len(split.locations) - 2] = rank
        with pytest.raises(PlanError, match=r"runs on (no|one) rank"):
            checked(replace(split, runs_on=runs_on))
    plan = plan_of([4 * CELL] * 2)
    runs_on = plan.runs_on.copy()
    runs_on[plan.where == 0] = 1
    with pytest.raises(PlanError, match="a cell in the memory of rank 0 runs elsewhere"):
        checked(replace(plan, runs_on=runs_on))
