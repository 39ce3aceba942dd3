from dataclasses import replace

import pytest

from serving.launch import settings
from serving.launch.settings import Settings
from serving.plan.plan import least_blocks, over_utilization, plan
from serving.profiles import load
from tools.cli.errors import UserError


def chosen(*given: str) -> Settings:
    return settings.resolve(load.load("dsv41"), given, {})


def test_memory_adds_up() -> None:
    found = plan(chosen("INDEXER_KV_DTYPE=mxfp4"))
    assert found.budgets is not None
    budget = found.budgets["mxfp4"]
    assert budget.available[0] + sum(term.usual for term in budget.terms) == pytest.approx(0.94 * 94.97)
    usual, least, most = budget.available
    assert least <= usual <= most
    # vLLM 0.33.0 sets graphs aside, which the base of the published 4.39 GiB did not.
    assert usual + budget.terms[-1].usual == pytest.approx(4.39, abs=0.05)


def test_every_pair_of_formats_is_there_and_one_is_chosen() -> None:
    found = plan(chosen())
    pairs = [(one.record.name, one.index_key, bool(one.refused)) for one in found.formats]
    assert pairs == [
        ("fp8_ds_mla", "fp8", False),
        ("fp8_ds_mla", "mxfp4", False),
        ("nvfp4_ds_mla", "fp8", False),
        ("nvfp4_ds_mla", "mxfp4", False),
    ]
    assert [one.chosen for one in found.formats] == [True, False, False, False]


def test_larger_steps_take_memory_twice() -> None:
    small, large = (plan(chosen(f"MAX_NUM_BATCHED_TOKENS={size}")) for size in (2048, 8192))
    assert small.budgets and large.budgets
    assert small.budgets["fp8"].available[0] > large.budgets["fp8"].available[0] + 2
    assert small.chosen.layout.blocks < large.chosen.layout.blocks


def test_share_that_is_asked_for_is_in_the_curve() -> None:
    found = plan(chosen("INDEXER_KV_DTYPE=mxfp4"))
    curve = dict(over_utilization(found))
    assert curve[0.94] == found.chosen.usual
    assert list(curve.values()) == sorted(curve.values(), key=lambda fits: fits.tokens)


def test_line_without_a_model() -> None:
    asked = chosen()
    toy = replace(asked, profile=replace(asked.profile, line="toy"))
    assert least_blocks(toy) is None
    with pytest.raises(UserError, match=r"^toy: no model of this line is known to the planner; there are dsv41$"):
        plan(toy)
