import numpy as np
import pytest

from serving.experts.placement import outlook, step
from serving.experts.placement.counts import Counts
from serving.experts.placement.hits import Held
from serving.experts.placement.host import with_rates
from serving.experts.placement.made_up import counted, model, one_node, popularity, two_nodes
from serving.experts.placement.plan import ColdMode, Model, Plan, Sharding, make

# Round numbers: a GB/s a term.
RATES = {"hbm": 1000.0, "peer": 100.0, "pcie": 10.0, "ram": 50.0, "nvme": 1.0}


def planned(
    cells: int, ranks: int = 2, sharding: Sharding = "whole", cold: ColdMode = "fetch", ram: int | None = None,
    banks: tuple[int, ...] = (), given: Model | None = None, skew: float = 1.2,
) -> Plan:  # fmt: skip
    """A plan with room for `cells` cells in each rank's memory."""
    given = given or model()
    share = popularity(len(given.layers), given.experts, skew=skew)
    size = 3 * given.hidden * given.intermediate * 17 // 32
    form = np.zeros(share.shape, np.int64)
    host = with_rates(one_node(ranks, ram, None, banks), RATES)
    budget = cells * (-(-size // ranks) if sharding == "split" else size)
    return make(given, host, share, form, ["mxfp4"], [budget] * ranks, 0, sharding, cold)


def share_of(plan: Plan) -> "np.typing.NDArray[np.float64]":
    assert plan.problem is not None
    return plan.problem.share


def test_chance_that_a_cell_is_asked_for() -> None:
    share = np.array([[0.5, 0.3, 0.2, 0.0]])
    assert step.activity(share, 1, 1).tolist() == [pytest.approx([0.5, 0.3, 0.2, 0.0])]
    assert step.activity(share, 2, 1).tolist() == [pytest.approx([1.0, 0.6, 0.4, 0.0])]
    assert step.activity(share, 1, 3)[0, 1] == pytest.approx(1 - 0.7**3)
    # One token asks for top_k cells, many tokens for every cell that is ever asked for.
    assert step.activity(np.full((1, 8), 1 / 8), 3, 1).sum() == pytest.approx(3)
    assert step.activity(share, 1, 10_000).sum() == pytest.approx(3)


def test_chance_is_that_of_routing_drawn_at_random() -> None:
    share = popularity(1, 12)
    random = np.random.Generator(np.random.PCG64(0))
    drawn = random.choice(12, size=(20_000, 5), p=share[0])
    seen = np.mean([np.isin(np.arange(12), one) for one in drawn], axis=0)
    assert step.activity(share, 1, 5)[0] == pytest.approx(seen, abs=0.02)


def test_everything_in_gpu_memory() -> None:
    plan = planned(64)
    found = step.step(plan, share_of(plan), 1)
    assert plan.hot.all() and set(found.terms) == {"hbm"}
    cell = plan.format_bytes[0]
    active = step.activity(share_of(plan), 4, 1)
    assert found.hbm.sum() == pytest.approx((active * cell).sum()) and found.pcie.sum() == found.nvme == 0
    slowest = sum(max((active[row] * cell)[plan.where[row] == rank].sum() for rank in range(2)) for row in range(4))
    assert found.seconds == pytest.approx(slowest / 1000e9)


def test_fetched_cells_cross_pcie() -> None:
    plan = planned(8)
    found = step.step(plan, share_of(plan), 2)
    whole = step.activity(share_of(plan), 4, 2) * plan.whole_bytes
    assert found.pcie.sum() == pytest.approx(whole[~plan.hot].sum()) and found.ram.sum() == pytest.approx(
        found.pcie.sum()
    )
    assert found.seconds == pytest.approx(sum(found.terms.values())) and found.terms["pcie"] > found.terms["hbm"]


def test_cpu_computes_and_only_activations_cross() -> None:
    plan = planned(8, cold="cpu")
    found = step.step(plan, share_of(plan), 2)
    # Of each layer: two tokens of 256 bf16 down, and of 256 fp32 back, once a node.
    assert found.pcie.sum() == 4 * 2 * 256 * 6
    assert found.terms["ram"] == pytest.approx(found.ram.sum() / 50e9)
    assert found.terms["hand-over"] == pytest.approx(4 * 2e-6)
    assert found.terms["activations"] == pytest.approx(4 * 2 * 256 * 6 / 10e9)
    assert found.seconds == pytest.approx(sum(found.terms.values()))


def test_nvme_is_read_before_all_else() -> None:
    plan = planned(8, ram=8 * 53_248)
    found = step.step(plan, share_of(plan), 1)
    nvme = plan.where == len(plan.locations) - 1
    whole = step.activity(share_of(plan), 4, 1) * plan.whole_bytes
    assert nvme.any() and found.nvme == pytest.approx(whole[nvme].sum())
    assert found.terms["nvme"] == pytest.approx(found.nvme / 1e9)
    assert found.ram.sum() == pytest.approx(whole[~plan.hot].sum())


def test_nvme_is_read_through_the_node_of_the_rank() -> None:
    share = popularity(4, 16)
    plan = make(model(), two_nodes(2, 0), share, np.zeros(share.shape, np.int64), ["mxfp4"], [0, 0])
    found = step.step(plan, share, 1)
    assert found.ram.sum() == pytest.approx(found.nvme)
    for rank in range(2):
        mine = plan.runs_on == rank
        assert found.ram[rank] == pytest.approx((step.activity(share, 4, 1) * plan.whole_bytes)[mine].sum())


def test_bank_is_read_over_the_peer_link() -> None:
    plan = planned(8, banks=(53_248 * 200,))
    found = step.step(plan, share_of(plan), 1)
    assert found.pcie.sum() == 0 and found.terms["peer"] > 0
    # Both ranks read from it.
    assert (found.peer > 0).all()


def test_bank_sends_all_that_ranks_read_of_it() -> None:
    one, two = (planned(8, ranks=4, banks=banks) for banks in ((53_248 * 200,), (53_248 * 16, 53_248 * 200)))
    found = step.step(one, share_of(one), 8)
    # Its one link carries what four ranks read, each of which could take as much.
    assert found.terms == {"peer": pytest.approx(found.peer.sum() / 100e9)}
    assert found.seconds == pytest.approx(found.peer.sum() / 100e9)
    # Two banks send side by side.
    both = step.step(two, share_of(two), 8)
    assert both.peer.sum() == pytest.approx(found.peer.sum())
    assert 0.5 <= both.seconds / found.seconds < 0.9


def test_slices_are_read_by_every_rank() -> None:
    plan = planned(8, sharding="split", ranks=4)
    found = step.step(plan, share_of(plan), 1)
    assert len(set(found.hbm.tolist())) == len(set(found.pcie.tolist())) == 1
    whole = step.activity(share_of(plan), 4, 1) * plan.whole_bytes
    assert found.pcie.sum() == pytest.approx(whole[~plan.hot].sum(), rel=1e-4)
    assert found.ram.sum() == pytest.approx(whole[~plan.hot].sum(), rel=1e-4)


def test_step_is_one_of_decode() -> None:
    plan = planned(8)
    share = share_of(plan)
    decode = counted(share, 500, 4).phases["all"]
    prefill = np.full_like(decode, 7)
    both, only = (
        outlook.look(plan, share, Held(Counts(plan.model.layers, phases), "held", True), {"decode": 1, "prefill": 1}, 1)
        for phases in ({"decode": decode, "prefill": prefill}, {"decode": decode})
    )
    assert both.hit.share < only.hit.share and both.step.active == only.step.active
    assert both.step.seconds == only.step.seconds
    # So is its interval, which prefill's hits say nothing of.
    assert both.step.low is not None and both.step.high is not None
    assert both.step.low < both.step.seconds < both.step.high
    assert (both.step.low, both.step.high) == (only.step.low, only.step.high)


def test_ends_of_the_interval() -> None:
    plan = planned(8)
    share = share_of(plan)
    hit = float((share * plan.hot).sum(axis=1).mean())
    found = step.step(plan, share, 1, hit - 0.05, hit + 0.05)
    assert found.low is not None and found.high is not None and found.low < found.seconds < found.high
    same = step.step(plan, share, 1, hit, hit)
    assert same.low == pytest.approx(same.seconds) and same.high == pytest.approx(same.seconds)
    # A cell that every step reads is read no more often where fewer tokens hit.
    all_of_them = step.step(plan, share, 10_000, hit / 2, hit)
    assert all_of_them.high is not None and all_of_them.high <= all_of_them.seconds


def test_more_memory_is_never_slower() -> None:
    times = []
    for cells in (0, 4, 8, 16, 24, 32):
        plan = planned(cells)
        times.append(step.step(plan, share_of(plan), 1).seconds)
    assert times == sorted(times, reverse=True) and times[0] > 5 * times[-1]


def test_nodes_work_side_by_side() -> None:
    given = model(layers=6, experts=64)
    share = popularity(6, 64, skew=0.2)
    form = np.zeros(share.shape, np.int64)
    seconds = []
    for host in (one_node(4), two_nodes(4)):
        plan = make(given, with_rates(host, RATES), share, form, ["mxfp4"], [0] * 4, 0, "whole", "cpu")
        seconds.append(step.step(plan, share, 4).terms["ram"])
        near = [
            set(plan.runs_on[plan.where == index].tolist())
            for index, one in enumerate(plan.locations)
            if one.tier == "ram"
        ]
        assert near in ([{0, 1, 2, 3}], [{0, 1}, {2, 3}])
    # A node's own bandwidth is for its own half.
    assert 0.5 <= seconds[1] / seconds[0] < 0.6


def test_tokens_that_ask_for_everything() -> None:
    plan = planned(8)
    share = share_of(plan)
    found = step.step(plan, share, 10_000)
    assert found.active == pytest.approx(plan.where.size)
