"""A plan kept up with routing as it drifts: a few swaps at a time, each of which must be worth it.

Pure functions from a plan and the shares of a window of steps to swaps, and from a plan and swaps to a plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from serving.experts.placement.plan import Plan, checked
from serving.experts.placement.problem import Floats, Ints, PlanError

# As the published dynamic mode has it.
WINDOW_STEPS = 2000
SWAPS_A_LAYER = 2
MARGIN = 1.25


@dataclass(frozen=True)
class Swap:
    """Two experts of one layer and format that change places.

    Attributes:
        layer: its number.
        brought: expert that comes into GPU memory.
        dropped: expert that leaves it.
        rank: whose memory; -1: every rank's slice.
        bytes: of one cell; as many go each way.
        brought_share: of the layer's routing in the window.
        dropped_share: the same of the other one.
    """

    layer: int
    brought: int
    dropped: int
    rank: int
    bytes: int
    brought_share: float
    dropped_share: float


def swaps(
    plan: Plan,
    share: Floats,
    steps: int,
    window: int = WINDOW_STEPS,
    per_layer: int = SWAPS_A_LAYER,
    margin: float = MARGIN,
) -> list[Swap]:
    """The swaps that a window's routing is worth; none when it covers fewer than `window` steps.

    In each layer the most wanted cell outside of GPU memory is held against the least wanted one inside, of the same
    format, so that budgets and floors stay as they are; it comes in if its share is more than `margin` times the
    other's. At most `per_layer` swaps a layer, those that gain most. A cell that moved does not move back in the next
    window unless shares have changed by more than a factor of the margin's square root.

    Args:
        plan: as it is now.
        share: [L, E] shares of the window.
        steps: that the window covers.
        window: steps that are needed.
        per_layer: swaps a layer at most.
        margin: 1 or more.

    Raises PlanError where an argument is out of range.
    """
    if share.shape != plan.where.shape or not np.isfinite(share).all() or (share < 0).any():
        raise PlanError(f"shares: expected numbers from 0 on, of shape {plan.where.shape}")
    if not 1 <= margin < float("inf") or per_layer < 0 or steps < 0 or window < 0:
        raise PlanError("margin: expected 1 or more; steps, window and swaps a layer: 0 or more")
    if steps < window:
        return []
    found: list[Swap] = []
    for row in range(len(plan.model.layers)):
        pairs = [
            (float(share[row, new] - share[row, old]), new, old)
            for form in range(len(plan.formats))
            for new, old in _pairs(plan, share, row, form, per_layer)
            if share[row, new] > margin * share[row, old]
        ]
        pairs.sort(key=lambda pair: (-pair[0], pair[1]))
        found += [_swap(plan, share, row, new, old) for _, new, old in pairs[:per_layer]]
    return found


def apply(plan: Plan, chosen: Sequence[Swap]) -> Plan:
    """The plan after swaps. Raises PlanError where one does not fit the plan, which may have moved on."""
    where, runs_on, hot = plan.where.copy(), plan.runs_on.copy(), plan.hot
    row_of = {layer: row for row, layer in enumerate(plan.model.layers)}
    seen: set[tuple[int, int]] = set()
    for one in chosen:
        row = row_of.get(one.layer, -1)
        cells = {(one.layer, one.brought), (one.layer, one.dropped)}
        if row < 0 or hot[row, one.brought] or not hot[row, one.dropped] or seen & cells:
            raise PlanError(
                f"swap of layer {one.layer}, experts {one.brought} and {one.dropped}: is not one of this plan"
            )
        if plan.form[row, one.brought] != plan.form[row, one.dropped]:
            raise PlanError(f"swap of layer {one.layer}: experts {one.brought} and {one.dropped} differ in format")
        seen |= cells
        pair = [one.brought, one.dropped]
        where[row, pair], runs_on[row, pair] = where[row, pair[::-1]], runs_on[row, pair[::-1]]
    return checked(replace(plan, where=where, runs_on=runs_on, problem=None, chosen=None))


def _pairs(plan: Plan, share: Floats, row: int, form: int, most: int) -> list[tuple[int, int]]:
    """The most wanted outside with the least wanted inside, the second with the second, and so on."""
    mine = plan.form[row] == form
    outside, inside = np.flatnonzero(mine & ~plan.hot[row]), np.flatnonzero(mine & plan.hot[row])
    outside = _sorted(outside, -share[row])[:most]
    inside = _sorted(inside, share[row])[:most]
    return list(zip(outside.tolist(), inside.tolist(), strict=False))


def _sorted(experts: Ints, key: Floats) -> Ints:
    return np.asarray(experts[np.argsort(key[experts], kind="stable")], dtype=np.int64)


def _swap(plan: Plan, share: Floats, row: int, new: int, old: int) -> Swap:
    return Swap(
        layer=plan.model.layers[row],
        brought=new,
        dropped=old,
        rank=int(plan.runs_on[row, old]),
        bytes=int(plan.whole_bytes[row, new]),
        brought_share=float(share[row, new]),
        dropped_share=float(share[row, old]),
    )
