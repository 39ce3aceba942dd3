"""Hit rate and step time over the budget, and their plot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotext

from serving.experts.placement.plan import Plan, make
from serving.experts.placement.problem import Floats
from serving.experts.placement.step import step

_POINTS = 12
_WIDTH, _HEIGHT = 78, 14


@dataclass(frozen=True)
class Point:
    """What one budget gives.

    Attributes:
        bytes: of GPU memory for experts, all ranks together.
        share: hit rate.
        seconds: of a step's experts.
    """

    bytes: int
    share: float
    seconds: float


def sweep(plan: Plan, planned: Floats, hits: Floats, decode: Floats, rows: int) -> list[Point]:
    """The same placement with budgets from nothing to everything in GPU memory; floors and RAM's limits left aside.

    Args:
        plan: whose model, formats, host and mode are taken; its ranks share each budget evenly.
        planned: [L, E] shares to place by.
        hits: [L, E] shares to judge the hit rate by.
        decode: [L, E] shares of a decode step.
        rows: tokens of a step.
    """
    nodes = tuple(replace(node, ram=None) for node in plan.host.nodes)
    host = replace(plan.host, nodes=nodes, nvme=None)
    held = plan.ranks if plan.sharding == "split" else 1
    # Room for one cell more a rank, so that the last point holds all.
    whole = int(plan.slice_bytes.sum()) * held + plan.ranks * int(plan.slice_bytes.max())
    points = []
    for budget in np.linspace(0, whole, _POINTS).astype(np.int64).tolist():
        found = make(
            plan.model, host, planned, plan.form, plan.formats, [budget // plan.ranks] * plan.ranks, 0,
            plan.sharding, plan.cold,
        )  # fmt: skip
        rate = float((hits * found.hot).sum(axis=1).mean())
        points.append(Point(budget, rate, step(found, decode, rows).seconds))
    return points


def plot(points: Sequence[Point], ranks: int) -> str:
    """Two plots as text: hit rate, and milliseconds of a step's experts, over GiB a rank."""
    gib = [point.bytes / ranks / 2**30 for point in points]
    return "\n".join(
        (
            _plot("hit rate, %", gib, [100 * point.share for point in points]),
            _plot("experts' time of a step, ms", gib, [1e3 * point.seconds for point in points]),
        )
    )


def _plot(title: str, x: Sequence[float], y: Sequence[float]) -> str:
    figure = plotext.figure
    figure.clear()
    figure.plot_size(_WIDTH, _HEIGHT)
    figure.draw(figure.signal(list(x), list(y), marker="hd").lines())
    figure.title(title)
    figure.label("GiB of experts a rank")
    text = str(figure.build().string(True))
    return "\n".join(line.rstrip() for line in text.splitlines())
