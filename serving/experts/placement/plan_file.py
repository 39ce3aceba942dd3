"""Plans as files: JSON, the same bytes for the same plan, checked whole when read back.

The schema is described in docs/plan-experts.md.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from serving.experts.placement.formats import FORMATS
from serving.experts.placement.host import RATES, Node, host
from serving.experts.placement.plan import Location, Model, Plan, checked, cold_locations
from serving.experts.placement.problem import MOST_BYTES, Ints, PlanError, cut
from tools.files import atomic

SCHEMA = "moet.plan-experts.v1"
_MODEL = ("name", "layers", "experts", "top_k", "hidden", "intermediate")


def encode(plan: Plan, evidence: Mapping[str, Any]) -> bytes:
    """The plan as JSON; `evidence` is what it was made from and promises, kept as it is."""
    whole = {
        "schema": SCHEMA,
        "model": {key: getattr(plan.model, key) for key in _MODEL},
        "ranks": plan.ranks,
        "sharding": plan.sharding,
        "cold": plan.cold,
        "host": {
            "nodes": [{"cores": node.cores, "ranks": node.ranks, "ram": node.ram} for node in plan.host.nodes],
            "banks": plan.host.banks,
            "nvme": plan.host.nvme,
        },
        "formats": [
            {"name": name, "bytes": size} for name, size in zip(plan.formats, plan.format_bytes.tolist(), strict=True)
        ],
        "locations": [
            {
                "tier": one.tier,
                "ranks": one.ranks,
                "index": one.index,
                "budget": one.budget,
                "bytes": used,
                "cells": cells,
            }
            for one, used, cells in zip(plan.locations, plan.used.tolist(), plan.cells.tolist(), strict=True)
        ],
        "layers": [
            {"layer": layer, "floor": floor, "format": form, "where": where, "runs_on": runs_on}
            for layer, floor, form, where, runs_on in zip(
                plan.model.layers,
                plan.floors.tolist(),
                plan.form.tolist(),
                plan.where.tolist(),
                plan.runs_on.tolist(),
                strict=True,
            )
        ],
        "evidence": evidence,
    }
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def write(path: Path, plan: Plan, evidence: Mapping[str, Any]) -> None:
    """Puts the plan in place of the file in one stroke. Raises OSError, and then leaves the old file."""
    atomic.write(path, encode(plan, evidence))


def read(path: Path) -> tuple[Plan, dict[str, Any]]:
    """A plan and its evidence from a file. Raises PlanError that names the file and the part, OSError."""
    return decode(path.read_bytes(), str(path))


def decode(text: bytes, name: str) -> tuple[Plan, dict[str, Any]]:
    """A plan and its evidence from JSON; everything that encode() writes is checked. Raises PlanError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{name}: is no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise PlanError(f"{name}: schema: expected {SCHEMA!r}, found {cut(repr(found))}; make the plan anew")
    try:
        return _decode(data)
    except PlanError as error:
        raise PlanError(f"{name}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise PlanError(f"{name}: is no plan: {type(error).__name__} {cut(str(error))}; make it anew") from None


def _decode(data: dict[str, Any]) -> tuple[Plan, dict[str, Any]]:
    given = {key: data["model"][key] for key in _MODEL}
    layers = tuple(given.pop("layers"))
    numbers = [given[key] for key in _MODEL[2:]]
    if not all(type(one) is int for one in (*layers, *numbers)) or min(numbers) < 1 or min(layers) < 0:
        raise PlanError("model: expected whole numbers from 1 on")
    if len(set(layers)) != len(layers) or not isinstance(given["name"], str):
        raise PlanError("model: expected a name, and each layer once")
    model = Model(layers=layers, **given)
    if model.top_k > model.experts:
        raise PlanError(f"model: top_k: expected 1 to {model.experts} experts, found {model.top_k}")
    if [one["layer"] for one in data["layers"]] != list(layers):
        raise PlanError("layers: expected those of the model, in their order")
    formats = tuple(one["name"] for one in data["formats"])
    if not formats or any(one not in FORMATS for one in formats) or len(set(formats)) != len(formats):
        raise PlanError(f"formats: expected some of {', '.join(FORMATS)}, each once")
    if data["sharding"] not in ("whole", "split") or data["cold"] not in ("fetch", "cpu"):
        raise PlanError("sharding, cold: expected whole or split, fetch or cpu")
    ranks = data["ranks"]
    if type(ranks) is not int or not 1 <= ranks <= 4096:
        raise PlanError(f"ranks: expected 1 to 4096, found {cut(repr(ranks))}")
    place = data["host"]
    nodes = [Node(one["cores"], tuple(one["ranks"]), one["ram"]) for one in place["nodes"]]
    for size in (*place["banks"], place["nvme"], *(node.ram for node in nodes)):
        if size is not None and type(size) is not int:
            raise PlanError(f"host: expected whole bytes, found {cut(repr(size))}")
    there = host(nodes, ranks, place["banks"], place["nvme"], RATES)
    locations = tuple(
        Location(one["tier"], tuple(one["ranks"]), one["index"], one["budget"]) for one in data["locations"]
    )
    gpus = [one for one in locations if one.tier == "gpu"]
    if [one.ranks for one in gpus] != (
        [tuple(range(ranks))] if data["sharding"] == "split" else [(r,) for r in range(ranks)]
    ):
        raise PlanError("locations: expected one GPU memory a rank, in their order")
    if [one.tier for one in locations[len(gpus) :]] != [one.tier for one in cold_locations(there)]:
        raise PlanError("locations: expected GPUs, banks, nodes' RAM and NVMe, as the host has them")
    for one in gpus:
        if type(one.budget) is not int or one.budget < 0:
            raise PlanError(f"locations: budget: expected bytes, found {cut(repr(one.budget))}")
    for index, (one, other) in enumerate(zip(locations, (*gpus, *cold_locations(there)), strict=True)):
        expected = replace(other, index=0) if one.tier == "gpu" else other
        for key in ("budget", "ranks", "index"):
            if getattr(one, key) != getattr(expected, key):
                wanted = getattr(expected, key)
                raise PlanError(f"location {index} ({one.tier}): {key}: expected {wanted}, as the host has it")
    plan = Plan(
        model=model,
        host=there,
        ranks=ranks,
        sharding=data["sharding"],
        cold=data["cold"],
        formats=formats,
        form=_rows(data, "format", model, len(formats)),
        locations=locations,
        where=_rows(data, "where", model, len(locations)),
        runs_on=_rows(data, "runs_on", model, ranks, -1),
        floors=_whole([one["floor"] for one in data["layers"]], "floor", 0, model.experts + 1),
    )
    if float(plan.whole_bytes.astype(np.float64).sum()) >= MOST_BYTES:
        raise PlanError(f"formats: all cells together overflow {MOST_BYTES:,} bytes")
    if plan.format_bytes.tolist() != [one["bytes"] for one in data["formats"]]:
        raise PlanError("formats: the bytes do not agree with the geometry")
    stated = [(one["bytes"], one["cells"]) for one in data["locations"]]
    if stated != list(zip(plan.used.tolist(), plan.cells.tolist(), strict=True)):
        raise PlanError("locations: bytes or cells do not agree with the layers'; the file was changed or cut")
    return checked(plan), _evidence(data["evidence"])


def _evidence(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise PlanError("evidence: expected an object")
    if not isinstance(given.get("updates", []), list):
        raise PlanError("evidence: updates: expected a list")
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        raise PlanError("evidence: a number in it is NaN or infinite") from None
    return given


def _rows(data: dict[str, Any], key: str, model: Model, end: int, least: int = 0) -> Ints:
    rows = []
    for one in data["layers"]:
        if not isinstance(one[key], list) or len(one[key]) != model.experts:
            raise PlanError(f"layer {one['layer']}: {key}: expected a number for each of {model.experts} experts")
        rows.append(_whole(one[key], f"layer {one['layer']}: {key}", least, end))
    return np.stack(rows)


def _whole(values: list[Any], where: str, least: int, end: int) -> Ints:
    if not set(map(type, values)) <= {int} or min(values) < least or max(values) >= end:
        raise PlanError(f"{where}: expected whole numbers from {least} to {end - 1}")
    return np.array(values, dtype=np.int64)
