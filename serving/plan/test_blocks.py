import pytest

from serving.plan.blocks import Demand, layout, longest
from serving.plan.geometry import DSV41, FP4, FP8
from serving.plan.published import CASES, MEMORY, Case

GIB = 1 << 30
LONG = Demand(524_288, 4096, 5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_published_figures_are_met_to_two_in_a_thousand(case: Case) -> None:
    found = layout(DSV41, case.record, case.index_key, case.demand).capacity(case.available_gib * GIB)
    assert found.tokens == pytest.approx(case.tokens, rel=0.002)


def test_stated_tokens_are_of_whole_blocks() -> None:
    # Where the memory is known to a block and not to 0.01 GiB, the figure is met to the token.
    found = layout(DSV41, FP8, "fp8", LONG)
    assert found.capacity(14_619 * found.block_bytes).tokens == 1_490_870
    assert found.capacity(14_620 * found.block_bytes - 1).tokens == 1_490_870


def test_block_is_the_published_sum() -> None:
    found = layout(DSV41, FP8, "mxfp4", LONG)
    assert found.block_bytes == 3 * (37_440 + 4_608) + 74_880 + 9_216 == 210_240
    windows = [group for group in found.groups if group.what == "sliding windows"]
    assert [group.layers for group in windows] == [11, 11, 11, 10]
    assert {group.bytes // group.layers for group in windows} == {19_008}
    assert layout(DSV41, FP8, "fp8", LONG).block_bytes == 230_400


def test_fp4_is_twice_as_many_only_where_windows_weigh_little() -> None:
    def gain(demand: Demand) -> float:
        fp8, fp4 = (layout(DSV41, record, "mxfp4" if record is FP4 else "fp8", demand) for record in (FP8, FP4))
        return fp4.capacity(20 * GIB).tokens / fp8.capacity(20 * GIB).tokens

    assert gain(LONG) == pytest.approx(1.67, abs=0.01)
    assert gain(Demand(1 << 30, 256, 5)) == pytest.approx(230_400 / 114_688, abs=0.001)


def test_longest_context_is_the_last_that_fits() -> None:
    available = 0.5 * GIB
    most = longest(DSV41, FP8, "fp8", LONG, available, 1 << 20)
    for context, fits in ((most, True), (most + 1, False)):
        found = layout(DSV41, FP8, "fp8", Demand(context, 4096, 5))
        assert (found.least * found.block_bytes <= available) is fits
    assert longest(DSV41, FP8, "fp8", LONG, 1 << 20, 1 << 20) == 0
    assert longest(DSV41, FP8, "fp8", LONG, 1 << 50, 1 << 20) == 1 << 20


def test_weights_are_the_published_ones() -> None:
    weights = {tp: sum(one.bytes(tp) for one in DSV41.experts) / GIB + DSV41.shared_gib / tp for tp in (4, 8)}
    assert weights[4] + DSV41.replicated_gib == pytest.approx(81.1, abs=0.1)
    assert weights[8] + DSV41.replicated_gib == pytest.approx(50.2, abs=0.1)


@pytest.mark.parametrize(("consumed", "available"), [(84.32, 3.14), (83.07, 4.39)])
def test_card_is_what_two_servers_add_up_to(consumed: float, available: float) -> None:
    assert consumed + MEMORY.activation + available == pytest.approx(0.94 * MEMORY.card, abs=0.01)
