"""A plan together with what it promises: share, bound, hit rate, bytes and time of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.experts.placement.bound import Bound, bound
from serving.experts.placement.counts import shares
from serving.experts.placement.hits import Held, HitRate, hit_rate
from serving.experts.placement.plan import Plan
from serving.experts.placement.problem import Floats, PlanError
from serving.experts.placement.step import Step, step

# Digits of evidence that are kept; libraries differ in the last ones of a sum.
_DIGITS = 9


@dataclass(frozen=True)
class Outlook:
    """What a plan promises.

    Attributes:
        plan: see there.
        planned: [L, E] shares that it was made from.
        held: counts that it is judged by.
        judged: [L, E] their shares.
        decode: [L, E] shares of a decode step.
        coverage: share of the routing it was made from that is in GPU memory.
        bound: on the coverage, of any placement.
        hit: hit rate on the held counts.
        step: a decode step.
        rows: tokens of the step.
    """

    plan: Plan
    planned: Floats
    held: Held
    judged: Floats
    decode: Floats
    coverage: float
    bound: Bound | None
    hit: HitRate
    step: Step
    rows: int

    @property
    def gap(self) -> float:
        """Share that a better placement could add at most."""
        return 0.0 if self.bound is None else max(0.0, self.bound.share - self.coverage)


def look(plan: Plan, planned: Floats, held: Held, weights: Mapping[str, float], rows: int) -> Outlook:
    """Judges a plan.

    Args:
        plan: any; the bound is of those that were just made.
        planned: [L, E] shares that it was made from.
        held: counts to judge it by.
        weights: of the phases.
        rows: tokens of a decode step, from 1 on.
    """
    if not 1 <= rows <= 65536:
        raise PlanError(f"rows of a step: expected 1 to 65536, found {rows}")
    coverage = float((planned * plan.hot).sum(axis=1).mean())
    hit = hit_rate(plan.hot, held, weights, plan.model.top_k)
    only_decode = {"decode": 1.0} if "decode" in held.counts.phases else weights
    decode = shares(held.counts, only_decode)
    of_decode = hit_rate(plan.hot, held, only_decode, plan.model.top_k)
    return Outlook(
        plan=plan,
        planned=planned,
        held=held,
        judged=shares(held.counts, weights),
        decode=decode,
        coverage=coverage,
        bound=None if plan.problem is None else bound(plan.problem, coverage),
        hit=hit,
        step=step(plan, decode, rows, of_decode.low, of_decode.high),
        rows=rows,
    )


def by_location(found: Outlook) -> list[float]:
    """Share of the judged routing that each location serves."""
    where, layers = found.plan.where, len(found.plan.model.layers)
    served = np.bincount(where.ravel(), weights=found.judged.ravel(), minlength=len(found.plan.locations))
    return [float(one) / layers for one in served]


def evidence(found: Outlook, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan was made from and promises, as its file and --json have it.

    `inputs`: how it was asked for: digests of the files, weights, seed.
    """
    made = found.step
    document: dict[str, Any] = {
        "inputs": dict(inputs),
        "coverage": found.coverage,
        "bound": None if found.bound is None else {"share": found.bound.share, "method": found.bound.method},
        "gap": found.gap,
        "hit_rate": {
            "share": found.hit.share,
            "low": found.hit.low,
            "high": found.hit.high,
            "method": found.hit.method,
            "by_location": by_location(found),
        },
        "step": {
            "rows": found.rows,
            "seconds": made.seconds,
            "low": made.low,
            "high": made.high,
            "active_cells": made.active,
            "terms": dict(made.terms),
            "bytes": {
                "hbm": made.hbm.tolist(),
                "peer": made.peer.tolist(),
                "pcie": made.pcie.tolist(),
                "ram": made.ram.tolist(),
                "nvme": made.nvme,
            },
            "bandwidth_gbs": {
                name: {"gbs": rate.gbs, "source": rate.source} for name, rate in found.plan.host.rates.items()
            },
        },
        "ranks": [
            {"rank": rank, "vram_bytes": found.plan.vram(rank), "ram_bytes": found.plan.ram(rank)}
            for rank in range(found.plan.ranks)
        ],
    }
    rounded: dict[str, Any] = _rounded(document)
    return rounded


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(one) for one in value]
    return value
