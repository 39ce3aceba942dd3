"""Why an expert lives where it does, and what would move it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from serving.experts.placement.plan import Location, Plan
from serving.experts.placement.problem import PlanError, gib


@dataclass(frozen=True)
class Reason:
    """One cell explained.

    Attributes:
        layer, expert: which.
        format: of its weights.
        bytes: of it.
        share: of its layer's routing.
        rank_in_layer: 1 is the layer's most wanted.
        position: in the order of share per byte of all cells, 1 first.
        lives: in words.
        why: in words.
        moves: what would move it, in words, one a way.
    """

    layer: int
    expert: int
    format: str
    bytes: int
    share: float
    rank_in_layer: int
    position: int
    lives: str
    why: str
    moves: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def explain(plan: Plan, layer: int, expert: int) -> Reason:
    """Explains a cell of a plan that was just made. Raises PlanError where there is no such cell."""
    if layer not in plan.model.layers:
        layers = plan.model.layers
        raise PlanError(f"layer {layer}: the model's MoE layers are {layers[0]} to {layers[-1]}")
    if not 0 <= expert < plan.model.experts:
        raise PlanError(f"expert {expert}: a layer has experts 0 to {plan.model.experts - 1}")
    if plan.problem is None or plan.chosen is None:
        raise PlanError("explain: needs the counts that the plan is made from")
    row = plan.model.layers.index(layer)
    share = plan.problem.share
    return Reason(
        layer=layer,
        expert=expert,
        format=plan.formats[plan.form[row, expert]],
        bytes=int(plan.whole_bytes[row, expert]),
        share=float(share[row, expert]),
        rank_in_layer=int((share[row] > share[row, expert]).sum()) + 1,
        position=int(plan.chosen.position[row, expert]) + 1,
        lives=describe(plan, plan.locations[plan.where[row, expert]], int(plan.runs_on[row, expert])),
        why=_why(plan, row, expert),
        moves=tuple(_moves(plan, row, expert)),
    )


def describe(plan: Plan, location: Location, reader: int) -> str:
    """A place in words."""
    by = "every rank its slice" if reader < 0 else f"rank {reader}"
    runs = "computed by the CPU" if plan.cold == "cpu" else f"read by {by}"
    match location.tier:
        case "gpu":
            return "memory of every rank, a slice each" if len(location.ranks) > 1 else f"memory of rank {reader}"
        case "peer":
            return f"memory of bank {location.index}, read by {by}"
        case "ram":
            return f"RAM of node {location.index}, {runs}"
        case "nvme":
            return f"NVMe, {runs}"


def _why(plan: Plan, row: int, expert: int) -> str:
    assert plan.chosen is not None and plan.problem is not None
    cells = plan.where.size
    place = int(plan.chosen.position[row, expert]) + 1
    turn = f"its share per byte is number {place:,} of {cells:,}"
    if plan.chosen.floor[row, expert]:
        return f"it is one of the {plan.floors[row]} that its layer's floor keeps in GPU memory; {turn}"
    if plan.hot[row, expert]:
        return f"{turn}, and GPU memory had room at its turn"
    ahead = plan.hot & (plan.chosen.position < place - 1)
    room, takes = int(plan.chosen.free.max()), int(plan.slice_bytes[row, expert])
    return (
        f"{turn}; the {int(ahead.sum()):,} cells in GPU memory that come before it, and the floors, left no room for "
        f"its {takes:,} bytes: {room:,} are free in one memory at most"
    )


def _moves(plan: Plan, row: int, expert: int) -> list[str]:
    assert plan.chosen is not None and plan.problem is not None
    share, position = plan.problem.share, plan.chosen.position
    own, size = float(share[row, expert]), plan.slice_bytes
    alike = size == size[row, expert]
    if plan.hot[row, expert]:
        moves = []
        if plan.chosen.floor[row, expert]:
            moves.append(f"a floor of its layer below {plan.floors[row]} would let it take its turn like others")
        outside = alike & ~plan.hot
        if not outside.any():
            return [*moves, "nothing: every cell of its size is in GPU memory"]
        best = np.where(outside, share, -1.0)
        at = np.unravel_index(int(best.argmax()), best.shape)
        behind = size[plan.hot & (position >= position[row, expert])].sum()
        name = f"expert {at[1]} of layer {plan.model.layers[at[0]]}"
        return [
            *moves,
            f"a share below {best[at]:.4%} (now {own:.4%}): then {name} comes first",
            f"GPU budgets smaller by {_bytes(int(behind))} in all: it and all that come after it",
        ]
    inside = alike & plan.hot & ~plan.chosen.floor
    moves = []
    if inside.any():
        least = np.where(inside, share, np.inf)
        at = np.unravel_index(int(least.argmin()), least.shape)
        factor = f", {least[at] / own:.2f} times as much" if own > 0 else ""
        name = f"expert {at[1]} of layer {plan.model.layers[at[0]]}"
        moves.append(f"a share above {least[at]:.4%} (now {own:.4%}{factor}): then it takes the place of {name}")
    before = size[~plan.hot & (position <= position[row, expert])].sum()
    lacking = max(0, int(before) - int(plan.chosen.free.sum()))
    moves.append(f"GPU budgets larger by {_bytes(lacking)} in all: it and all before it that are outside now")
    return moves


def _bytes(number: int) -> str:
    return f"{number:,} bytes ({gib(number)})"
