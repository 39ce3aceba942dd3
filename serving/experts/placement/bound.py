"""How good a placement can be at most: the linear relaxation, and the optimum itself where the case is small."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import optimize, sparse

from serving.experts.placement.greedy import order
from serving.experts.placement.problem import Floats, Ints, PlanError, Problem

# Variables (cells times memories) up to which the optimum is looked for, and nodes until the bound so far is taken.
_SMALL = 256
_NODES = 500


@dataclass(frozen=True)
class Bound:
    """An upper bound of the share of routing that GPU memory can serve.

    Attributes:
        share: the bound, 0 to 1.
        method: "linear relaxation", or "optimum" where it is one that some placement reaches.
    """

    share: float
    method: str


def bound(problem: Problem, reached: float) -> Bound:
    """Returns the bound on a placement's share; `reached` is what a placement is known to reach.

    The relaxation is taken at first. Where `reached` is below it and the case is small, HiGHS looks for the optimum
    (mixed-integer; with too many nodes its own bound so far is taken).
    """
    relaxed = relaxation(problem)
    if reached >= relaxed * (1 - 1e-12):
        return Bound(float(reached), "optimum")
    if problem.size.size * len(problem.budgets) <= _SMALL:
        share, proven = exact(problem)
        if share < relaxed:
            return Bound(max(share, reached), "optimum" if proven else "branch and bound")
    return Bound(relaxed, "linear relaxation")


def relaxation(problem: Problem) -> float:
    """The linear relaxation's optimum: cells may be cut in pieces.

    Pieces make one memory of all of them, each at most its budget rounded down to what whole cells can fill (multiples
    of the sizes' greatest common divisor). Without floors that is Dantzig's: the order of share per byte, the last cell
    cut. With floors it is the minimum over a price of bytes of the Lagrangian dual, which equals the relaxation; any
    price gives a bound, so that rounding cannot make it too low. Raises PlanError where the floors do not fit.
    """
    budget = _room(problem)
    size = problem.size.astype(np.float64)
    if not problem.floors.any():
        return _dantzig(problem, budget)
    least = np.sort(problem.size, axis=1)[np.arange(problem.experts)[None, :] < problem.floors[:, None]].sum()
    if least > budget:
        raise PlanError(f"floors: {int(least - budget):,} bytes of GPU memory are lacking")
    return _dual(problem.value, size, problem.floors, float(budget))


def exact(problem: Problem) -> tuple[float, bool]:
    """The optimum by HiGHS, and whether it is proven; if not, an upper bound."""
    bins, cells = len(problem.budgets), problem.size.size
    divisor = int(np.gcd.reduce(problem.size.ravel()))
    size = problem.size.ravel() // divisor
    value = problem.value.ravel()
    # Variable b * cells + i: cell i is in memory b.
    per_bin = sparse.block_diag([size[None, :].astype(np.float64)] * bins, format="csr")
    once = sparse.hstack([sparse.identity(cells)] * bins, format="csr")
    layer = sparse.csr_matrix(np.kron(np.eye(len(problem.layers)), np.ones((1, problem.experts))))
    found = optimize.milp(
        -np.tile(value, bins),
        integrality=np.ones(bins * cells),
        bounds=optimize.Bounds(0, 1),
        constraints=[
            optimize.LinearConstraint(per_bin, ub=(problem.budgets // divisor).astype(np.float64)),
            optimize.LinearConstraint(once, ub=np.ones(cells)),
            optimize.LinearConstraint(sparse.hstack([layer] * bins), lb=problem.floors.astype(np.float64)),
        ],
        options={"node_limit": _NODES, "mip_rel_gap": 0.0},
    )
    if found.status == 2:
        raise PlanError("floors: no placement of whole cells meets them within the budgets")
    if found.mip_dual_bound is None:
        return relaxation(problem), False
    # HiGHS's own bound holds to its tolerance.
    share = min(1.0, float(-found.mip_dual_bound) + 1e-9)
    return (share, False) if found.status != 0 else (min(share, float(-found.fun) + 1e-9), True)


def brute_force(problem: Problem) -> float:
    """The optimum by trying every placement; for tests on a few cells. Raises PlanError where none meets the floors."""
    value, size = problem.value.ravel(), problem.size.ravel()
    layer = np.repeat(np.arange(len(problem.layers)), problem.experts)
    best = -1.0
    for placed in product(range(-1, len(problem.budgets)), repeat=len(size)):
        bins = np.array(placed)
        used = np.bincount(bins + 1, weights=size, minlength=len(problem.budgets) + 1)[1:]
        held = np.bincount(layer[bins >= 0], minlength=len(problem.layers))
        if (used <= problem.budgets).all() and (held >= problem.floors).all():
            best = max(best, float(value[bins >= 0].sum()))
    if best < 0:
        raise PlanError("floors: no placement of whole cells meets them within the budgets")
    return best


def _room(problem: Problem) -> int:
    divisor = int(np.gcd.reduce(problem.size.ravel()))
    return int((problem.budgets // divisor).sum()) * divisor


def _dantzig(problem: Problem, budget: int) -> float:
    first = order(problem)
    value, used = problem.value.ravel()[first], np.cumsum(problem.size.ravel()[first])
    whole = int(np.searchsorted(used, budget, side="right"))
    share = float(value[:whole].sum())
    if whole < len(first):
        left = budget - (int(used[whole - 1]) if whole else 0)
        share += float(value[whole]) * left / int(problem.size.ravel()[first[whole]])
    return min(share, 1.0)


def _dual(value: Floats, size: Floats, floors: Ints, budget: float) -> float:
    """Minimum over the price p of p * budget + sum over layers of the best sum of (value - p * size)."""

    def at(price: float) -> tuple[float, float]:
        """The dual, and how many bytes over the budget its cells are."""
        worth = value - price * size
        taken = worth > 0
        # Only the layers that would fall short of their floor have to be put in order.
        for row in np.flatnonzero(taken.sum(axis=1) < floors):
            taken[row, np.argsort(-worth[row], kind="stable")[: floors[row]]] = True
        return price * budget + float(worth[taken].sum()), float(size[taken].sum()) - budget

    low, high = 0.0, float((value / size).max())
    best, over = at(low)
    if over <= 0:
        return min(best, 1.0)
    for _ in range(64):
        share, over = at(high)
        best = min(best, share)
        if over <= 0:
            break
        low, high = high, high * 2
    for _ in range(64):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        share, over = at(middle)
        best = min(best, share)
        low, high = (middle, high) if over > 0 else (low, middle)
    return min(best, 1.0)
