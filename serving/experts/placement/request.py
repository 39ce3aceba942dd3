"""From files and options to counts, formats and floors of a model."""

import hashlib
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serving.experts.placement.counts import USUAL_SPLIT, Counts, on_layers, read_json, refuse_split
from serving.experts.placement.eplb import SUFFIXES, read_eplb
from serving.experts.placement.plan import Model
from serving.experts.placement.problem import Ints, PlanError

_SPAN = r"(\d{1,7})(?:-(\d{1,7}))?"
_CELLS = re.compile(rf"{_SPAN}(?::{_SPAN})?=([a-z0-9]+)")
_FLOOR = re.compile(rf"(?:{_SPAN}=)?(\d{{1,7}})")


def read_counts(path: Path, model: Model, part: str = USUAL_SPLIT) -> Counts:
    """Counts on a model's layers, from a file of any form: .json, or tensors of vLLM's EPLB.

    Raises PlanError that names the file and the term, OSError.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        # It is read twice, once for its digest.
        raise PlanError(f"{path}: expected a regular file of counts; a pipe or a device has to be saved first")
    if path.suffix in SUFFIXES:
        refuse_split(path, part)
        found = read_eplb(path, model.experts)
    else:
        found = read_json(path, part)
    return on_layers(found, model.layers, model.experts, str(path))


def digest(path: Path) -> str:
    """sha256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def phase_weights(text: str) -> dict[str, float]:
    """Weights such as "decode=1,prefill=0.25". Raises PlanError."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in ("decode", "prefill") or name in found:
            raise PlanError(f"weights of phases: expected decode=1,prefill=0.25, found {text!r}")
        found[name] = number(value, "weights of phases")
    if not any(found.values()):
        raise PlanError(f"weights of phases: expected one above 0, found {text!r}")
    return found


def number(text: str, what: str) -> float:
    """A finite number from 0 on. Raises PlanError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 2**40:
        raise PlanError(f"{what}: expected a number from 0 on, found {text!r}")
    return value


def gibs(text: str, what: str) -> list[int]:
    """Bytes of a list of GiB such as "52" or "52,52,40,52". Raises PlanError."""
    return [int(number(part, what) * 2**30) for part in text.split(",")]


def formats(model: Model, usual: str, cells: Sequence[str]) -> tuple[tuple[str, ...], Ints]:
    """Names of formats, and [L, E] index of each cell's.

    `cells`: "LAYERS[:EXPERTS]=FORMAT" such as "3-10=w2" or "5:0-15=bf16", later ones over earlier ones.

    Raises PlanError.
    """
    names = [usual]
    form = np.zeros((len(model.layers), model.experts), dtype=np.int64)
    for text in cells:
        found = _CELLS.fullmatch(text)
        if found is None:
            raise PlanError(
                f'cells: expected LAYERS[:EXPERTS]=FORMAT such as "3-10=w2" or "5:0-15=bf16", found {text!r}'
            )
        rows = _rows(model, found[1], found[2], f"cells {text}")
        first = int(found[3] or 0)
        last = int(found[4] or found[3] or model.experts - 1)
        if not first <= last < model.experts:
            raise PlanError(f"cells {text}: a layer has experts 0 to {model.experts - 1}")
        if found[5] not in names:
            names.append(found[5])
        form[rows, first : last + 1] = names.index(found[5])
    return tuple(names), form


def floors(model: Model, given: Sequence[str]) -> Ints:
    """[L] floors from "N" for all layers or "LAYERS=N", later ones over earlier ones. Raises PlanError."""
    found = np.zeros(len(model.layers), dtype=np.int64)
    for text in given:
        matched = _FLOOR.fullmatch(text)
        if matched is None:
            raise PlanError(f'floor: expected a number of experts or LAYERS=NUMBER such as "3-10=16", found {text!r}')
        rows = _rows(model, matched[1], matched[2], f"floor {text}") if matched[1] else slice(None)
        found[rows] = int(matched[3])
    return found


def cell(text: str) -> tuple[int, int]:
    """LAYER:EXPERT. Raises PlanError."""
    found = re.fullmatch(r"(\d{1,7}):(\d{1,7})", text)
    if found is None:
        raise PlanError(f"expected LAYER:EXPERT such as 12:345, found {text!r}")
    return int(found[1]), int(found[2])


def _rows(model: Model, first: str, last: str | None, what: str) -> slice:
    start, end = int(first), int(last or first)
    if start > end or start not in model.layers or end not in model.layers:
        raise PlanError(f"{what}: the model's MoE layers are {model.layers[0]} to {model.layers[-1]}")
    return slice(model.layers.index(start), model.layers.index(end) + 1)
