"""How much of the routing GPU memory will serve, from counts that the placement has not seen."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from serving.experts.placement.counts import Counts, shares
from serving.experts.placement.problem import Flags, Floats, Ints, PlanError

# A two-sided 95 % interval.
_Z = 1.959963984540054
# Steps are judged by the means of this many batches: few and long ones, so that batches are nearly independent. With
# fewer steps than that nothing is known of how steps differ.
_BATCHES = 8
# As _Z, of Student's t with _BATCHES - 1 degrees of freedom.
_T = 2.3646242510103
# Of neighbouring batches; an estimate from so few is not trusted beyond it.
_MOST_ALIKE = 0.8


@dataclass(frozen=True)
class Held:
    """Counts to judge a placement by.

    Attributes:
        counts: on the model's layers.
        method: how they were had, in words.
        unseen: whether the placement was made without them.
    """

    counts: Counts
    method: str
    unseen: bool


@dataclass(frozen=True)
class HitRate:
    """Share of routing that GPU memory serves.

    Attributes:
        share: 0 to 1, the mean over layers.
        low, high: a 95 % interval, None where nothing unseen is at hand.
        method: how share and interval were had, in words.
        by_layer: [L] shares.
    """

    share: float
    low: float | None
    high: float | None
    method: str
    by_layer: Floats


def split(counts: Counts, fraction: float, seed: int) -> tuple[Counts, Held]:
    """Parts counts into those to plan from and those to judge by.

    Counts with steps are parted in time: the last `fraction` of the steps is held out. Others are thinned: of each
    count a binomial number with that chance, which says how sure the sample is, not how routing drifts.

    Args:
        counts: any.
        fraction: 0 to 0.9; with 0 nothing is held out.
        seed: of the thinning.

    Raises PlanError where a layer is left without counts.
    """
    if not 0 <= fraction <= 0.9:
        raise PlanError(f"share to hold out: expected 0 to 0.9, found {fraction}")
    if fraction == 0:
        return counts, Held(
            counts, "the same counts that it was planned from: too high by what they fit by chance", False
        )
    if counts.windows is not None:
        kept = len(counts.windows) - max(1, round(len(counts.windows) * fraction))
        if kept >= 1:
            before, after = counts.windows[:kept], counts.windows[kept:]
            train = replace(counts, phases={"all": before.sum(axis=0)}, windows=before)
            held = replace(counts, phases={"all": after.sum(axis=0)}, windows=after)
            _none_empty(train, "left to plan from")
            _none_empty(held, "held out")
            return train, Held(held, f"the last {len(after)} of {len(counts.windows)} steps", True)
    random = np.random.Generator(np.random.PCG64(seed))
    thinned = {phase: random.binomial(rows, fraction).astype(np.int64) for phase, rows in counts.phases.items()}
    rest = {phase: rows - thinned[phase] for phase, rows in counts.phases.items()}
    train, held = replace(counts, phases=rest, windows=None), replace(counts, phases=thinned, windows=None)
    _none_empty(train, "left to plan from")
    _none_empty(held, "held out")
    return train, Held(held, f"{fraction:.0%} of the same counts, drawn at random: no drift is seen", True)


def hit_rate(hot: Flags, held: Held, weights: Mapping[str, float], top_k: int) -> HitRate:
    """Returns the hit rate of a placement on held counts, with a 95 % interval.

    Counts with 8 steps or more: Student's t on the means of 8 batches of steps, widened by how much neighbouring
    batches resemble each other, and never narrower than independent tokens would have it; layers that hit together
    widen it too. Others: each layer and phase as a binomial of counts/top_k draws with two hits and two misses added
    (Agresti-Coull), the layers as if all hit together, which is the widest; tokens of one request resemble each other,
    which it does not see.

    Args:
        hot: [L, E] bool, cells in GPU memory.
        held: counts on the same layers.
        weights: of the phases, as the plan has them.
        top_k: experts a token is routed to.
    """
    share = shares(held.counts, weights)
    by_layer = (share * hot).sum(axis=1)
    point = float(by_layer.mean())
    if not held.unseen:
        return HitRate(point, None, None, held.method, by_layer)
    windows = held.counts.windows
    if windows is not None and len(windows) >= _BATCHES:
        half = _of_steps(windows, hot, top_k)
        low, high = point - half, point + half
        how = f"means of {_BATCHES} batches of steps"
    else:
        low, high = _binomial(hot, held.counts, weights, top_k)
        how = "binomial, layers as if they hit together"
    low, high = max(0.0, min(low, point)), min(1.0, max(high, point))
    return HitRate(point, low, high, f"{held.method}; {how}", by_layer)


def _of_steps(windows: Ints, hot: Flags, top_k: int) -> float:
    """Half of the interval's width, from steps [W, L, E]."""
    hits, picks = (windows * hot).sum(axis=2).astype(np.float64), windows.sum(axis=2).astype(np.float64)
    drawn = picks.sum(axis=0)
    rate = hits.sum(axis=0) / drawn
    # How far each step is from the mean over layers of the rates, weighed by its tokens; the steps' sum is 0.
    apart = len(windows) * ((hits - rate * picks) / drawn).mean(axis=1)
    batches = np.array_split(apart, _BATCHES)
    size, mean = np.array([len(one) for one in batches]), np.array([one.mean() for one in batches])
    variance = float((size * mean**2).sum()) / size.mean() / (_BATCHES - 1) / _BATCHES
    whole = float((mean**2).mean())
    # Of independent batches whose sum is 0 neighbours come out at -1 / number.
    alike = float((mean[1:] * mean[:-1]).mean()) / whole + 1 / _BATCHES if whole > 0 else 0.0
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    likely, draws = (hits.sum(axis=0) / top_k + 2) / (drawn / top_k + 4), drawn / top_k + 4
    least = float((likely * (1 - likely) / draws).sum()) / len(drawn) ** 2
    return float(max(_T * np.sqrt(variance * (1 + alike) / (1 - alike)), _Z * np.sqrt(least)))


def _binomial(hot: Flags, counts: Counts, weights: Mapping[str, float], top_k: int) -> tuple[float, float]:
    told = {phase: weights.get(phase, 0.0) for phase in counts.phases if phase != "all"} or {"all": 1.0}
    whole = sum(weight for weight in told.values() if weight > 0)
    centre, variance = np.zeros(len(hot)), np.zeros(len(hot))
    for phase, weight in told.items():
        if weight <= 0:
            continue
        rows = counts.phases[phase]
        draws = rows.sum(axis=1) / top_k
        rate = ((rows * hot).sum(axis=1) / top_k + 2) / (draws + 4)
        centre += weight / whole * rate
        variance += (weight / whole) ** 2 * rate * (1 - rate) / (draws + 4)
    half = _Z * float(np.sqrt(variance).mean())
    return float(centre.mean()) - half, float(centre.mean()) + half


def _none_empty(counts: Counts, what: str) -> None:
    for phase, rows in counts.phases.items():
        if not rows.any(axis=1).all():
            layer = counts.layers[int(np.argmin(rows.any(axis=1)))]
            raise PlanError(
                f"layer {layer}, phase {phase}: too few counts, none is {what}; count more tokens, or --hold-out 0"
            )
