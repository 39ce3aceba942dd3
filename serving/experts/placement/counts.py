"""Routing counts as they are published: two forms of JSON, read strictly."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from serving.experts.placement.problem import Floats, Ints, PlanError, cut

# Counts are summed over a layer, and layers over phases, in int64.
_MOST = 2**62
# What is read where a file has several sets of counts and nobody says which.
USUAL_SPLIT = "train"
# The first digits of a number that has too many are beyond 64 bits already.
_DIGITS = 400


@dataclass(frozen=True)
class Counts:
    """How often the router chose each expert.

    Attributes:
        layers: numbers of the layers, in the order of the rows.
        phases: phase ("decode", "prefill", or "all" where they are not told apart) to counts [L, E] int64.
        windows: [W, L, E] int64 counts in order of time, where the source has them; they sum to the phase "all".
        notes: what was left out or taken for granted, one line each.
    """

    layers: tuple[int, ...]
    phases: Mapping[str, Ints]
    windows: Ints | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def experts(self) -> int:
        """Experts a layer."""
        return int(next(iter(self.phases.values())).shape[1])


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as they were written, duplicates included."""


def read_json(path: Path, split: str = USUAL_SPLIT) -> Counts:
    """Reads {SPLIT: {"decode|prefill": {layer: [E]}}} or {layer: {"counts": [E]}}.

    Raises PlanError that names the file and the term: the layer, the expert, the phase. OSError where the file cannot
    be read.
    """
    try:
        whole = _parsed(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: is no JSON: {error}") from None
    table = _object(whole, str(path), "routing counts")
    if split in table:
        return _phases(table, split, str(path))
    if table and all(_number(key) is not None for key in table):
        refuse_split(path, split)
        lists = {
            key: _member(_object(one, f"{path}: layer {key}", '{"counts": [...]}'), "counts", f"{path}: layer {key}")
            for key, one in table.items()
        }
        layers, rows = _rows(lists, str(path), "")
        return Counts(layers, {"all": rows})
    found = ", ".join(cut(repr(key), 40) for key in sorted(table)[:5]) or "nothing"
    raise PlanError(
        f'{path}: expected {{"{split}": {{"decode": {{layer: [counts]}}}}}} or {{layer: {{"counts": [counts]}}}}, '
        f"found the keys {found}"
    )


def refuse_split(path: Path, split: str) -> None:
    """Raises PlanError where a split is asked for of a file that has one set of counts."""
    if split != USUAL_SPLIT:
        raise PlanError(f"{path}: has one set of counts, and no split {cut(repr(split))}; leave the split out")


def on_layers(counts: Counts, layers: Sequence[int], experts: int, source: str) -> Counts:
    """Returns the counts with rows in the order of a model's `layers`.

    Counts numbered 0..L-1 are taken as the model's L MoE layers in their order, which is noted. Raises PlanError that
    names the layers that are missing or too many, or the wrong number of experts.
    """
    if counts.experts != experts:
        raise PlanError(f"{source}: expected {experts} experts a layer, found {counts.experts}")
    notes = list(counts.notes)
    place = {layer: row for row, layer in enumerate(counts.layers)}
    if set(place) == set(layers):
        order = [place[layer] for layer in layers]
    elif set(place) == set(range(len(layers))):
        order = [place[row] for row in range(len(layers))]
        notes.append(f"{source}: layers 0 to {len(layers) - 1} are taken as the model's {layers[0]} to {layers[-1]}")
    else:
        missing, extra = sorted(set(layers) - set(place)), sorted(set(place) - set(layers))
        parts = [f"{words} {_some(of)}" for words, of in (("lacks layers", missing), ("has no such", extra)) if of]
        raise PlanError(f"{source}: {'; '.join(parts)}; the model has {len(layers)}: {_some(layers)}")
    return Counts(
        tuple(layers),
        {phase: rows[order] for phase, rows in counts.phases.items()},
        None if counts.windows is None else counts.windows[:, order],
        tuple(notes),
    )


def shares(counts: Counts, weights: Mapping[str, float]) -> Floats:
    """[L, E] float64 shares of routing: counts normalised in each layer and phase, and mixed by the phases' weights.

    A source that tells no phases apart is taken whole. Raises PlanError where no phase has a weight, or a layer of a
    phase with a weight has no counts.
    """
    told = [phase for phase in counts.phases if phase != "all"]
    used = {phase: weights.get(phase, 0.0) for phase in told} if told else {"all": 1.0}
    used = {phase: weight for phase, weight in used.items() if weight > 0}
    if not used or not math.isfinite(sum(used.values())):
        raise PlanError(f"weights of phases: none above 0 for {', '.join(counts.phases)}")
    mixed = np.zeros((len(counts.layers), counts.experts))
    for phase, weight in used.items():
        rows = counts.phases[phase]
        totals = rows.sum(axis=1)
        if not totals.all():
            layer = counts.layers[int(np.argmin(totals != 0))]
            raise PlanError(f"layer {layer}, phase {phase}: all {counts.experts} counts are zero")
        mixed += weight * (rows / totals[:, None])
    return mixed / sum(used.values())


def checked(rows: Ints, layers: Sequence[int], source: str) -> Ints:
    """Returns int64 counts [.., L, E] that are not negative and whose sums do not overflow; raises PlanError else."""
    if (rows < 0).any():
        at = [int(index) for index in np.argwhere(rows < 0)[0]]
        raise PlanError(f"{source}: layer {layers[at[-2]]}, expert {at[-1]}: is negative ({rows[tuple(at)]})")
    totals = rows.astype(np.float64).sum(axis=-1)
    totals = totals.sum(axis=tuple(range(totals.ndim - 1))) if totals.ndim > 1 else totals
    if (totals >= _MOST).any():
        raise PlanError(f"{source}: layer {layers[int(np.argmax(totals >= _MOST))]}: its counts overflow 64 bits")
    return rows


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        # A whole number with more digits than Python takes; what holds it is found later, and named.
        return json.loads(text, object_pairs_hook=_Pairs, parse_int=lambda digits: int(digits[:_DIGITS]))


def _phases(table: dict[str, Any], split: str, source: str) -> Counts:
    body = _object(table[split], f"{source}: {split}", '{"decode": ..., "prefill": ...}')
    found: dict[str, Ints] = {}
    layers: tuple[int, ...] | None = None
    for phase, one in body.items():
        if phase not in ("decode", "prefill"):
            raise PlanError(f"{source}: {split}: expected the phases decode and prefill, found {cut(repr(phase))}")
        these, rows = _rows(_object(one, f"{source}: {phase}", "{layer: [counts]}"), source, f"phase {phase}, ")
        if layers is not None and (these != layers or rows.shape != next(iter(found.values())).shape):
            raise PlanError(f"{source}: phase {phase} has other layers or experts than the phase before it")
        layers, found[phase] = these, rows
    if layers is None:
        raise PlanError(f"{source}: {split}: has no phase; expected decode, prefill or both")
    others = sorted(set(table) - {split})
    notes = (f"{source}: {cut(', '.join(map(repr, others)))} left aside; {cut(repr(split))} is read",) if others else ()
    return Counts(layers, found, None, notes)


def _rows(lists: Mapping[str, Any], source: str, phase: str) -> tuple[tuple[int, ...], Ints]:
    numbers: dict[int, str] = {}
    for key in lists:
        layer = _number(key)
        if layer is None:
            raise PlanError(f"{source}: {phase}layer {cut(repr(key))}: expected a number")
        if layer in numbers:
            raise PlanError(f"{source}: {phase}layer {layer} is there twice, as {numbers[layer]!r} and {key!r}")
        numbers[layer] = key
    if not numbers:
        raise PlanError(f"{source}: {phase}has no layers")
    layers = tuple(sorted(numbers))
    rows = [_row(lists[numbers[layer]], f"{source}: {phase}layer {layer}") for layer in layers]
    for layer, row in zip(layers, rows, strict=True):
        if len(row) != len(rows[0]):
            raise PlanError(
                f"{source}: {phase}layer {layer}: has {len(row)} experts, layer {layers[0]} has {len(rows[0])}"
            )
    return layers, checked(np.stack(rows), layers, source if not phase else f"{source}: {phase.rstrip(', ')}")


def _row(values: Any, where: str) -> Ints:
    if not isinstance(values, list) or isinstance(values, _Pairs) or not values:
        raise PlanError(f"{where}: expected a list of counts")
    if not set(map(type, values)) <= {int}:
        for expert, value in enumerate(values):
            if type(value) is int or (type(value) is float and math.isfinite(value) and value.is_integer()):
                continue
            raise PlanError(f"{where}, expert {expert}: expected a whole number, found {cut(json.dumps(value))}")
        values = [int(value) for value in values]
    for expert, value in enumerate(values if max(values) >= _MOST or min(values) <= -_MOST else ()):
        if not -_MOST < value < _MOST:
            raise PlanError(
                f"{where}, expert {expert}: overflows 64 bits ({value:.3e})"
                if abs(value) < 1e300
                else f"{where}, expert {expert}: overflows 64 bits"
            )
    return np.array(values, dtype=np.int64)


def _object(value: Any, where: str, expected: str) -> dict[str, Any]:
    if not isinstance(value, _Pairs):
        raise PlanError(f"{where}: expected {expected}, found {type(value).__name__}")
    found: dict[str, Any] = {}
    for key, member in value:
        if key in found:
            raise PlanError(f"{where}: {cut(repr(key))} is there twice")
        found[key] = member
    return found


def _member(table: dict[str, Any], key: str, where: str) -> Any:
    if key not in table:
        raise PlanError(f"{where}: {key} is missing")
    return table[key]


def _number(key: str) -> int | None:
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else None


def _some(layers: Sequence[int]) -> str:
    listed = [str(layer) for layer in layers]
    return ", ".join(listed) if len(listed) <= 6 else f"{', '.join(listed[:4])} ... {listed[-1]}"
