import numpy as np
import pytest

from serving.experts.placement import hits
from serving.experts.placement.counts import Counts, shares
from serving.experts.placement.made_up import counted, popularity
from serving.experts.placement.problem import Flags, Floats, PlanError

WEIGHTS = {"decode": 1.0, "prefill": 0.25}
TOP_K = 4


def hottest(share: Floats, number: int) -> Flags:
    hot = np.zeros(share.shape, np.bool_)
    np.put_along_axis(hot, np.argsort(-share, axis=1)[:, :number], True, axis=1)
    return hot


def test_thinning_keeps_every_count() -> None:
    whole = counted(popularity(5, 32), 2000, TOP_K)
    train, held = hits.split(whole, 0.25, 3)
    assert (train.phases["all"] + held.counts.phases["all"] == whole.phases["all"]).all()
    assert 0.22 < held.counts.phases["all"].sum() / whole.phases["all"].sum() < 0.28
    again = hits.split(whole, 0.25, 3)[0]
    assert (again.phases["all"] == train.phases["all"]).all()
    assert (hits.split(whole, 0.25, 4)[0].phases["all"] != train.phases["all"]).any()


def test_steps_are_parted_in_time() -> None:
    windows = np.arange(10 * 2 * 3, dtype=np.int64).reshape(10, 2, 3) + 1
    train, held = hits.split(Counts((0, 1), {"all": windows.sum(axis=0)}, windows), 0.2, 0)
    assert (train.phases["all"] == windows[:8].sum(axis=0)).all() and held.method == "the last 2 of 10 steps"
    assert held.counts.windows is not None and (held.counts.windows == windows[8:]).all()
    assert hits.split(Counts((0, 1), {"all": windows[:2].sum(axis=0)}, windows[:2]), 0.5, 0)[1].method == (
        "the last 1 of 2 steps"
    )


def test_nothing_held_out_is_said() -> None:
    whole = counted(popularity(2, 8), 100, TOP_K)
    train, held = hits.split(whole, 0, 0)
    assert train is whole and not held.unseen
    rate = hits.hit_rate(hottest(shares(whole, WEIGHTS), 4), held, WEIGHTS, TOP_K)
    assert rate.low is rate.high is None and "too high" in rate.method


def test_too_few_counts() -> None:
    with pytest.raises(PlanError, match="layer 0, phase all: too few counts, none is held out"):
        hits.split(Counts((0,), {"all": np.array([[1, 0]])}), 0.01, 0)
    with pytest.raises(PlanError, match=r"expected 0 to 0\.9"):
        hits.split(Counts((0,), {"all": np.array([[1, 0]])}), 1.0, 0)


def test_seen_counts_flatter_and_unseen_do_not() -> None:
    true = popularity(20, 64, skew=0.3)
    gaps = []
    for seed in range(10):
        whole = counted(true, 60, TOP_K, seed)
        train, held = hits.split(whole, 0.3, seed)
        hot = hottest(shares(train, WEIGHTS), 16)
        real = float((true * hot).sum(axis=1).mean())
        seen = float((shares(train, WEIGHTS) * hot).sum(axis=1).mean())
        rate = hits.hit_rate(hot, held, WEIGHTS, TOP_K)
        gaps.append((seen - real, rate.share - real))
    assert min(gap[0] for gap in gaps) > 0.03 and abs(np.mean([gap[1] for gap in gaps])) < 0.02


def test_binomial_interval_holds_the_truth() -> None:
    true = popularity(10, 64)
    hot = hottest(true, 16)
    real = float((true * hot).sum(axis=1).mean())
    inside = 0
    for seed in range(200):
        held = hits.Held(counted(true, 300, TOP_K, seed), "held", True)
        rate = hits.hit_rate(hot, held, WEIGHTS, TOP_K)
        assert rate.low is not None and rate.high is not None and rate.low <= rate.share <= rate.high
        inside += rate.low <= real <= rate.high
    # As if layers hit together: at least as often as it says.
    assert inside >= 190


def test_binomial_interval_by_hand() -> None:
    # Two layers of 400 and 1600 draws (counts / 4), three quarters of them hits.
    rows = np.array([[1200, 400], [4800, 1600]], np.int64)
    held = hits.Held(Counts((0, 1), {"all": rows}), "held", True)
    rate = hits.hit_rate(np.array([[True, False]] * 2), held, WEIGHTS, TOP_K)
    parts = [((0.75 * n + 2) / (n + 4), n + 4) for n in (400, 1600)]
    half = 1.959964 * sum((p * (1 - p) / n) ** 0.5 for p, n in parts) / 2
    centre = sum(p for p, _ in parts) / 2
    assert rate.share == 0.75
    assert [rate.low, rate.high] == [pytest.approx(centre - half), pytest.approx(centre + half)]


def steps_of(hits_: "np.typing.NDArray[np.int64]", tokens: int) -> hits.Held:
    """Steps [W, L] of `tokens` picks a layer, so many of them in expert 0, all others in expert 1."""
    steps = np.stack((hits_, tokens - hits_), axis=2)
    return hits.Held(Counts(tuple(range(hits_.shape[1])), {"all": steps.sum(axis=0)}, steps), "held", True)


@pytest.mark.parametrize(("steps", "alike"), [(8, 0.0), (11, 0.0), (32, 0.5), (200, 0.8), (500, 0.5)])
def test_interval_of_steps_holds_the_truth(steps: int, alike: float) -> None:
    # All layers of a step lean to or from the hot cells together, and a step resembles the one before it.
    random = np.random.Generator(np.random.PCG64(steps))
    hot = np.array([[True, False]] * 6)
    real, inside, widths = np.linspace(0.5, 0.75, 6), 0, []
    for _ in range(200):
        lean = random.normal(0, 0.2, steps)
        for step in range(1, steps):
            lean[step] = alike * lean[step - 1] + (1 - alike**2) ** 0.5 * lean[step]
        held = steps_of(random.binomial(80, np.clip(real * (1 + lean[:, None]), 0, 1)), 80)
        rate = hits.hit_rate(hot, held, WEIGHTS, TOP_K)
        assert rate.low is not None and rate.high is not None and "means of 8 batches of steps" in rate.method
        inside += rate.low <= real.mean() <= rate.high
        widths.append(rate.high - rate.low)
    assert inside >= 182
    # Steps as if each told (1 - alike) / (1 + alike) of what an independent one does.
    ideal = 2 * 1.96 * 0.2 * real.mean() * ((1 + alike) / (1 - alike) / steps) ** 0.5
    assert np.mean(widths) < 1.8 * ideal


def test_interval_of_steps_by_hand() -> None:
    # Eight steps of 100 picks, 60 and 40 of them hits in turn: neighbours do not resemble each other.
    rate = hits.hit_rate(np.array([[True, False]]), steps_of(np.array([[60, 40]] * 4).reshape(8, 1), 100), WEIGHTS, 1)
    half = 2.364624 * (8 * 0.1**2 / 7 / 8) ** 0.5
    assert [rate.low, rate.high] == [pytest.approx(0.5 - half), pytest.approx(0.5 + half)]
    # Four of 60, then four of 40: batches that resemble each other tell less.
    rate = hits.hit_rate(np.array([[True, False]]), steps_of(np.array([[60]] * 4 + [[40]] * 4), 100), WEIGHTS, 1)
    alike = 5 / 7 + 1 / 8
    half *= ((1 + min(alike, 0.8)) / (1 - min(alike, 0.8))) ** 0.5
    assert [rate.low, rate.high] == [pytest.approx(0.5 - half), pytest.approx(0.5 + half)]


def test_steps_that_are_all_alike_have_an_interval_still() -> None:
    # No step differs: the interval is that of tokens which are independent.
    rate = hits.hit_rate(np.array([[True, False]] * 2), steps_of(np.full((20, 2), 8), 8), WEIGHTS, TOP_K)
    likely = (40 + 2) / (40 + 4)
    half = 1.959964 * (likely * (1 - likely) / 44 / 2) ** 0.5
    assert rate.share == rate.high == 1 and rate.low == pytest.approx(1 - half)


def test_few_steps_are_taken_as_counts() -> None:
    rate = hits.hit_rate(np.array([[True, False]]), steps_of(np.full((7, 1), 60), 100), WEIGHTS, 1)
    assert "binomial" in rate.method


def test_binomial_interval_of_two_phases_by_hand() -> None:
    rows = {"decode": np.array([[80, 20]]), "prefill": np.array([[300, 100]])}
    rate = hits.hit_rate(np.array([[True, False]]), hits.Held(Counts((0,), rows), "held", True), WEIGHTS, 1)
    parts = [(0.8, 82 / 104, 104), (0.2, 302 / 404, 404)]
    half = 1.959964 * sum(w**2 * p * (1 - p) / n for w, p, n in parts) ** 0.5
    centre = sum(w * p for w, p, _ in parts)
    assert [rate.low, rate.high] == [pytest.approx(centre - half), pytest.approx(centre + half)]


def test_phases_are_weighed() -> None:
    rows = {"decode": np.array([[80, 20]]), "prefill": np.array([[0, 100]])}
    held = hits.Held(Counts((0,), rows), "held", True)
    rate = hits.hit_rate(np.array([[True, False]]), held, WEIGHTS, 1)
    assert rate.share == pytest.approx(0.8 / 1.25)
    assert hits.hit_rate(np.array([[True, False]]), held, {"decode": 1.0}, 1).share == pytest.approx(0.8)


def test_all_and_none_have_an_interval_still() -> None:
    held = hits.Held(counted(popularity(2, 8), 100, TOP_K), "held", True)
    every = hits.hit_rate(np.ones((2, 8), np.bool_), held, WEIGHTS, TOP_K)
    none = hits.hit_rate(np.zeros((2, 8), np.bool_), held, WEIGHTS, TOP_K)
    assert every.share == pytest.approx(1) and every.low is not None and every.low < 1
    assert none.share == 0 and none.high is not None and none.high > 0
