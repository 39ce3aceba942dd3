"""A placement of all experts of a model: which memory each lives in, and which rank runs it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from serving.experts.placement import cold as cold_tiers
from serving.experts.placement.formats import cell_bytes
from serving.experts.placement.greedy import COLD, Greedy, greedy
from serving.experts.placement.host import Host
from serving.experts.placement.problem import Flags, Floats, Ints, PlanError, Problem, problem

Tier = Literal["gpu", "peer", "ram", "nvme"]
Sharding = Literal["whole", "split"]
ColdMode = Literal["fetch", "cpu"]


@dataclass(frozen=True)
class Model:
    """What of a model a plan needs.

    Attributes:
        name: of the recipe, or the model's own.
        layers: numbers of the MoE layers.
        experts: routed experts a layer.
        top_k: experts a token.
        hidden: model width.
        intermediate: width of one expert.
    """

    name: str
    layers: tuple[int, ...]
    experts: int
    top_k: int
    hidden: int
    intermediate: int


@dataclass(frozen=True)
class Location:
    """One memory.

    Attributes:
        tier: "gpu" of ranks, "peer" for a bank that ranks read, "ram", "nvme".
        ranks: gpu: the rank that holds the cells, or every rank with a slice of each; ram: ranks near it.
        index: number of the bank or node; 0 else.
        budget: bytes in each of its memories, None for as many as are needed.
    """

    tier: Tier
    ranks: tuple[int, ...]
    index: int
    budget: int | None


@dataclass(frozen=True)
class RowMap:
    """Experts of one layer as one rank sees them; together they are 0..E-1, each once.

    Attributes:
        hot: in its own memory.
        peer: in another GPU's memory.
        cold: in RAM or on NVMe.
    """

    hot: Ints
    peer: Ints
    cold: Ints


@dataclass(frozen=True)
class Plan:
    """A placement.

    Attributes:
        model: see there.
        host: see there.
        ranks: number of ranks that compute.
        sharding: "whole": a cell is on one rank; "split": every rank has a slice of it.
        cold: "fetch": cells in RAM are read by GPUs over PCIe; "cpu": the CPU computes them.
        formats: names of the cells' formats.
        form: [L, E] int64, index of each cell's format.
        locations: all memories.
        where: [L, E] int64, index of each cell's location.
        runs_on: [L, E] int64, rank that runs or reads the cell; -1: all, each its slice.
        floors: [L] int64, cells in GPU memory that each layer has at least.
    """

    model: Model
    host: Host
    ranks: int
    sharding: Sharding
    cold: ColdMode
    formats: tuple[str, ...]
    form: Ints
    locations: tuple[Location, ...]
    where: Ints
    runs_on: Ints
    floors: Ints
    problem: Problem | None = field(default=None, compare=False)
    chosen: Greedy | None = field(default=None, compare=False)

    @cached_property
    def format_bytes(self) -> Ints:
        """[formats] bytes of a whole cell."""
        return np.array([cell_bytes(one, self.model.hidden, self.model.intermediate) for one in self.formats], np.int64)

    @cached_property
    def whole_bytes(self) -> Ints:
        """[L, E] bytes of each cell."""
        return np.asarray(self.format_bytes[self.form], dtype=np.int64)

    @cached_property
    def slice_bytes(self) -> Ints:
        """[L, E] bytes that a cell takes in one GPU memory."""
        return slices(self.whole_bytes, self.ranks, self.sharding)

    @cached_property
    def hot(self) -> Flags:
        """[L, E] bool: in GPU memory of a rank that computes."""
        gpu = np.array([one.tier == "gpu" for one in self.locations])
        return np.asarray(gpu[self.where], dtype=np.bool_)

    @cached_property
    def used(self) -> Ints:
        """[locations] bytes in each memory; of slices, in each rank's."""
        size = np.where(self.hot, self.slice_bytes, self.whole_bytes)
        return _sums(self.where.ravel(), size.ravel(), len(self.locations))

    @property
    def cells(self) -> Ints:
        """[locations] number of cells in each."""
        return np.bincount(self.where.ravel(), minlength=len(self.locations)).astype(np.int64)

    def vram(self, rank: int) -> int:
        """Bytes of experts in a rank's memory."""
        return int(sum(self.used[i] for i, one in enumerate(self.locations) if one.tier == "gpu" and rank in one.ranks))

    def ram(self, rank: int) -> int:
        """Bytes of experts in RAM that a rank runs or reads; of split cells, its slices."""
        tier = np.array([one.tier == "ram" for one in self.locations])[self.where]
        if self.sharding == "split":
            return int(self.slice_bytes[tier].sum())
        return int(self.whole_bytes[tier & (self.runs_on == rank)].sum())

    def row_map(self, rank: int, row: int) -> RowMap:
        """What rank `rank` sees of the layer in row `row`."""
        tier = np.array([("gpu", "peer", "ram", "nvme").index(one.tier) for one in self.locations])
        own = np.array([one.tier == "gpu" and rank in one.ranks for one in self.locations])
        where = self.where[row]
        hot, cold = own[where], tier[where] >= 2
        return RowMap(*(np.flatnonzero(mask).astype(np.int64) for mask in (hot, ~hot & ~cold, cold)))


def slices(whole: Ints, ranks: int, sharding: Sharding) -> Ints:
    """Bytes in one GPU memory of cells of `whole` bytes."""
    return -(-whole // ranks) if sharding == "split" else whole


def make(
    model: Model,
    host: Host,
    share: Floats,
    form: Ints,
    formats: Sequence[str],
    budgets: Sequence[int],
    floors: Ints | int = 0,
    sharding: Sharding = "whole",
    cold: ColdMode = "fetch",
) -> Plan:
    """Places every expert.

    Args:
        model: what is placed.
        host: where.
        share: [L, E] routing, each row sums to 1.
        form: [L, E] index into `formats`.
        formats: names.
        budgets: bytes of each rank's GPU memory for experts.
        floors: cells in GPU memory that each layer has at least; one number or [L].
        sharding: see Plan.
        cold: see Plan.

    Raises PlanError that names the term that breaks: shares, budgets, floors, RAM and NVMe.
    """
    ranks = len(budgets)
    whole = np.array([cell_bytes(one, model.hidden, model.intermediate) for one in formats], dtype=np.int64)[form]
    size = slices(whole, ranks, sharding)
    every = tuple(range(ranks))
    if sharding == "split":
        gpus = [Location("gpu", every, 0, int(min(budgets, default=0)))]
    else:
        gpus = [Location("gpu", (rank,), 0, int(budget)) for rank, budget in enumerate(budgets)]
    names = ["every rank"] if sharding == "split" else [f"rank {rank}" for rank in every]
    held = problem(model.layers, share, size, [one.budget or 0 for one in gpus], _floors(floors), names)
    chosen = greedy(held)
    where, runs_on = chosen.bin.copy().ravel(), chosen.bin.copy().ravel()
    rest = np.flatnonzero(where == COLD)
    rest = rest[np.argsort(chosen.position.ravel()[rest], kind="stable")]
    found = cold_tiers.place(rest, held.share.ravel(), whole.ravel(), host, ranks)
    where[rest] = len(gpus) + found.place
    runs_on[rest] = found.runs_on
    if sharding == "split":
        runs_on[:] = -1
    shape = form.shape
    return checked(
        Plan(
            model, host, ranks, sharding, cold, tuple(formats), form, (*gpus, *cold_locations(host)),
            where.reshape(shape), runs_on.reshape(shape), held.floors, held, chosen,
        )
    )  # fmt: skip


def cold_locations(host: Host) -> tuple[Location, ...]:
    """Banks, RAM of the nodes and NVMe, in this order."""
    banks = [Location("peer", (), index, bank) for index, bank in enumerate(host.banks)]
    nodes = [Location("ram", node.ranks, index, node.ram) for index, node in enumerate(host.nodes)]
    return (*banks, *nodes, Location("nvme", (), 0, host.nvme))


def checked(plan: Plan) -> Plan:
    """Returns the plan; raises PlanError where it breaks a rule: a cell without a place, a budget, a floor."""
    if int(plan.where.min()) < 0 or int(plan.where.max()) >= len(plan.locations):
        raise PlanError(f"plan: a cell has no place; locations are 0 to {len(plan.locations) - 1}")
    if int(plan.runs_on.min()) < -1 or int(plan.runs_on.max()) >= plan.ranks:
        raise PlanError(f"plan: a cell runs on a rank that is none; ranks are 0 to {plan.ranks - 1}")
    if plan.sharding == "split" and (plan.runs_on != -1).any():
        raise PlanError("plan: a cell runs on one rank, but each rank has a slice of it")
    if plan.sharding == "whole" and (plan.runs_on < 0).any():
        raise PlanError(f"plan: a cell runs on no rank; ranks are 0 to {plan.ranks - 1}")
    for index, one in enumerate(plan.locations):
        if one.budget is not None and int(plan.used[index]) > one.budget:
            raise PlanError(f"plan: location {index} ({one.tier}): {plan.used[index]:,} bytes, budget {one.budget:,}")
        if one.tier == "gpu" and plan.sharding == "whole" and (plan.runs_on[plan.where == index] != one.ranks[0]).any():
            raise PlanError(f"plan: location {index}: a cell in the memory of rank {one.ranks[0]} runs elsewhere")
    held = plan.hot.sum(axis=1)
    if (held < plan.floors).any():
        row = int(np.argmax(held < plan.floors))
        raise PlanError(
            f"plan: layer {plan.model.layers[row]}: {held[row]} cells in GPU memory, floor {plan.floors[row]}"
        )
    return plan


def _floors(floors: Ints | int) -> Sequence[int] | int:
    return floors if isinstance(floors, int) else [int(one) for one in floors]


def _sums(keys: Ints, size: Ints, number: int) -> Ints:
    """Exact int64 sums of `size` by key; a weighted bincount would go through float64."""
    found = np.zeros(number, dtype=np.int64)
    for key in range(number):
        found[key] = size[keys == key].sum()
    return found
