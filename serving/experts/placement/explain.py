"""Why an expert lives where it does, and what would move it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from serving.experts.placement.plan import Location, Plan
from serving.experts.placement.problem import Floats, PlanError, gib


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
    return _ways_out(plan, row, expert) if plan.hot[row, expert] else _ways_in(plan, row, expert)


def _ways_out(plan: Plan, row: int, expert: int) -> list[str]:
    assert plan.chosen is not None and plan.problem is not None
    share, size, floor = plan.problem.share, plan.slice_bytes, plan.chosen.floor
    own, kept, moves = float(share[row, expert]), bool(floor[row, expert]), []
    if kept:
        moves.append(f"a floor of its layer below {plan.floors[row]} would let it take its turn like others")
    outside = (size == size[row, expert]) & ~plan.hot
    at, bar = _most(np.where(outside, share, -1.0))
    if kept:
        # It stays until another of its layer takes its place in the floor as well.
        (_, other), density = _most(np.where(floor[row], -1.0, share[row] / size[row])[None, :])
        if density * size[row, expert] < bar:
            at, bar = (row, other), density * size[row, expert]
    if 0 <= bar < own:
        moves.append(f"a share below {bar:.4%} (now {own:.4%}): then {_name(plan, at)} comes first")
    if not kept:
        behind = size[plan.hot & ~floor & (plan.chosen.position >= plan.chosen.position[row, expert])].sum()
        less = _bytes(int(behind) + int(plan.chosen.free.sum()))
        moves.append(
            f"the GPU budget of every rank smaller by {less}: it and all that come after it"
            if plan.sharding == "split"
            else f"GPU budgets smaller by {less} in all: it and all that come after it"
        )
    return moves


def _ways_in(plan: Plan, row: int, expert: int) -> list[str]:
    assert plan.chosen is not None and plan.problem is not None
    share, size, floor = plan.problem.share, plan.slice_bytes, plan.chosen.floor
    own, moves = float(share[row, expert]), []
    # A cell of a floor gives way to one of its own layer only.
    yields = ~floor
    yields[row] = True
    inside = (size == size[row, expert]) & plan.hot & yields
    if inside.any():
        at, _ = _most(np.where(inside, -share, -np.inf))
        least = float(share[at])
        factor = f", {least / own:.2f} times as much" if own > 0 else ""
        moves.append(f"a share above {least:.4%} (now {own:.4%}{factor}): then it takes the place of {_name(plan, at)}")
    widest = int(plan.chosen.free.argmax())
    before = size[~plan.hot & (plan.chosen.position <= plan.chosen.position[row, expert])].sum()
    lacking = _bytes(int(before) - int(plan.chosen.free[widest]))
    moves.append(
        f"the GPU budget of {plan.problem.names[widest]} larger by {lacking}: room for it and all before it that are "
        f"outside now"
    )
    return moves


def _most(of: Floats) -> tuple[tuple[int, int], float]:
    """Where the largest number of an array [L, E] is, the first of equals, and the number."""
    row, expert = np.unravel_index(int(of.argmax()), of.shape)
    return (int(row), int(expert)), float(of[row, expert])


def _name(plan: Plan, at: tuple[int, int]) -> str:
    return f"expert {at[1]} of layer {plan.model.layers[at[0]]}"


def _bytes(number: int) -> str:
    return f"{number:,} bytes ({gib(number)})"
