"""What the options of `moet plan experts` ask for: counts to judge by, budgets, a host."""

import argparse
from pathlib import Path
from typing import Any

from serving.experts.placement import host, request
from serving.experts.placement.counts import Counts
from serving.experts.placement.hits import Held, split
from serving.experts.placement.problem import PlanError
from serving.experts.recipes.load import Recipe

# Options that change nothing beside, or without, another one.
_NOT_WITH_UPDATE = (
    "held_out", "held_out_split", "hold_out", "ranks", "hot_gib", "sharding", "cold", "format", "cells", "floor",
    "host", "ram_gib", "nvme_gib", "bank_gib", "bandwidth", "rows", "rest_ms", "explain", "plot", "seed",
)  # fmt: skip
_NOT_WITHOUT_UPDATE = ("steps", "max_swaps", "margin")


def refuse_idle(given: argparse.Namespace, usual: argparse.ArgumentParser) -> None:
    """Raises PlanError for an option that differs from its default and would change nothing."""
    if given.update is not None:
        idle = dict.fromkeys(_NOT_WITH_UPDATE, "has no effect with --update, which keeps to the plan")
    else:
        idle = dict.fromkeys(_NOT_WITHOUT_UPDATE, "is for --update alone")
        if given.held_out is None:
            idle["held_out_split"] = "has no effect without --held-out"
        else:
            idle["hold_out"] = "has no effect with --held-out"
    for name, why in idle.items():
        if getattr(given, name) != usual.get_default(name):
            raise PlanError(f"--{name.replace('_', '-')}: {why}; leave it out")


def parts(given: argparse.Namespace, recipe: Recipe, counts: Counts) -> tuple[Counts, Held]:
    """Counts to plan from, and those to judge by: of --held-out, or a part of the same. Raises PlanError, OSError."""
    if given.held_out is None:
        return split(counts, given.hold_out, given.seed)
    other = request.read_counts(given.held_out, recipe.model, given.held_out_split)
    same = request.digest(given.held_out) == request.digest(given.counts) and given.split == given.held_out_split
    words = ", the ones planned from" if same else ""
    return counts, Held(other, f"counts of {given.held_out.name}{words}", not same)


def budgets(given: argparse.Namespace, recipe: Recipe) -> list[int]:
    """Bytes of each rank's GPU memory for experts: --hot-gib, or as published. Raises PlanError."""
    asked = None if given.hot_gib is None else request.gibs(given.hot_gib, "--hot-gib")
    ranks = given.ranks if given.ranks is not None else len(asked) if asked and len(asked) > 1 else recipe.ranks
    if not 1 <= ranks <= 4096:
        raise PlanError(f"--ranks: expected 1 to 4096, found {ranks}")
    if asked is None:
        if not recipe.hot_gib:
            raise PlanError(f"no GPU budget is published for {recipe.title}; give --hot-gib")
        asked = [int(recipe.hot_gib[0] * 2**30)]
    if len(asked) not in (1, ranks):
        raise PlanError(f"--hot-gib: expected one number or {ranks}, found {len(asked)}")
    return asked * ranks if len(asked) == 1 else asked


def place(given: argparse.Namespace, ranks: int) -> host.Host:
    """The host: of a file, of this machine, or one node with --ram-gib. Raises PlanError, OSError."""
    ram, nvme = (None if text is None else int(request.number(text, name) * 2**30)
                 for text, name in ((given.ram_gib, "--ram-gib"), (given.nvme_gib, "--nvme-gib")))  # fmt: skip
    banks = [] if given.bank_gib is None else request.gibs(given.bank_gib, "--bank-gib")
    if given.host is not None and given.host != "this":
        if (given.ram_gib, given.nvme_gib, given.bank_gib) != (None, None, None):
            raise PlanError(f"--ram-gib, --nvme-gib, --bank-gib: {given.host} says it; leave them out")
        found = host.read(Path(given.host), ranks)
    else:
        one = (host.Node("", tuple(range(ranks)), ram),)
        nodes = one if given.host is None else host.from_sysfs(Path("/sys"), ranks, ram)
        found = host.host(nodes, ranks, banks, nvme if nvme is not None or ram is None else 0)
    rates = {}
    for part in (given.bandwidth or "").split(",") if given.bandwidth else ():
        name, _, value = part.partition("=")
        rates[name] = request.number(value, f"--bandwidth {name}")
    return host.with_rates(found, rates)


def inputs(given: argparse.Namespace, weights: dict[str, float]) -> dict[str, Any]:
    """What a plan was made from, as its evidence has it."""
    found = {"counts_sha256": request.digest(given.counts), "split": given.split}
    if given.held_out is not None:
        found |= {"held_out_sha256": request.digest(given.held_out), "held_out_split": given.held_out_split}
    else:
        found |= {"hold_out": given.hold_out}
    return {**found, "phases": weights, "seed": given.seed}
