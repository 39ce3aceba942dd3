"""How long a placement takes, and how near its bound it comes: `bazel run //serving/experts/placement:bench`.

Beside the placement: the same order filled cell by cell in a plain loop, which is what the fill has to agree with.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from serving.experts.placement import bound, greedy, plan_file
from serving.experts.placement.made_up import one_node, popularity
from serving.experts.placement.plan import Model, make
from serving.experts.placement.problem import Ints
from tools.cli.output import Output

RANKS, REPEATS = 4, 3


def plain(cells: Ints, size: Ints, budgets: list[int]) -> int:
    """Cells that a loop over all of them places."""
    free, placed = list(budgets), 0
    for cell in cells.tolist():
        need = int(size[cell])
        for index, left in enumerate(free):
            if need <= left:
                free[index] -= need
                placed += 1
                break
    return placed


def main() -> None:
    """Prints seconds (median of 3) by number of cells and kind of sizes."""
    out = Output()
    rows = []
    for layers, experts, mixed, floor in ((75, 256, False, 0), (75, 256, True, 16), (2000, 500, True, 0),
                                          (2000, 500, True, 16), (8000, 500, True, 0)):  # fmt: skip
        rows.append(_one(layers, experts, mixed, floor))
    columns = ["cells", "formats", "floor", "place s", "plain loop s", "bound s", "whole plan s", "JSON s", "MB", "gap"]
    out.table([f">{name}" for name in columns], rows, "four ranks, GPU memory for half of the bytes")


def _one(layers: int, experts: int, mixed: bool, floor: int) -> list[str]:
    share = popularity(layers, experts)
    random = np.random.Generator(np.random.PCG64(0))
    model = Model("bench", tuple(range(layers)), experts, 8, 6144, 2048)
    formats = ["w2", "mxfp4", "bf16"] if mixed else ["mxfp4"]
    form = random.integers(0, len(formats), share.shape)
    host = one_node(RANKS)
    whole = make(model, host, share, form, formats, [0] * RANKS)
    budgets = [int(whole.whole_bytes.sum()) // 2 // RANKS] * RANKS
    plan = make(model, host, share, form, formats, budgets, floor)
    case = plan.problem
    assert case is not None
    reached = float(case.value[plan.hot].sum())
    found = bound.bound(case, reached)
    seconds = [
        _median(lambda: greedy.greedy(case)),
        _median(lambda: plain(greedy.order(case), case.size.ravel(), budgets)),
        _median(lambda: bound.bound(case, reached)),
        _median(lambda: make(model, host, share, form, formats, budgets, floor)),
        _median(lambda: plan_file.decode(plan_file.encode(plan, {}), "bench")),
    ]
    size = len(plan_file.encode(plan, {})) / 1e6
    gap = max(0.0, found.share - reached)
    return [
        f"{share.size:,}",
        str(len(formats)),
        str(floor),
        *(f"{one:.3f}" for one in seconds),
        f"{size:.1f}",
        f"{gap:.1e}",
    ]


def _median(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


if __name__ == "__main__":
    main()
