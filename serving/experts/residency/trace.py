"""Routing traces: which experts every row of every step was routed to, as recorded or made up.

Two forms of file, both with what RoutingTrace has:

- `.npz`: `experts` uint16 [rows, layers, top_k], `step` int64 [rows], and `about`, a JSON object as one string:
  {"schema": "moet.routing-trace.v1", "experts": 384, "layers": [3, 4, ...], "model": "...", "source": "..."}
- `.jsonl`: that object on the first line, then a line for each step and layer, steps ascending, all layers of a step
  together: {"step": 0, "layer": 3, "experts": [[ids of row 0], [ids of row 1], ...]}

A third is read only: `.npy` integers [tokens, layers, top_k], one file a request, as vLLM returns a request's routed
experts; token i of every request makes step i.
"""

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.cli.errors import UserError
from tools.files import atomic

SCHEMA = "moet.routing-trace.v1"


@dataclass(frozen=True)
class RoutingTrace:
    """Rows in the order of their steps.

    Attributes:
        routed: uint16 [rows, layers, top_k], each row's experts of a layer, all different.
        step: int64 [rows], not descending; steps need not be consecutive.
        experts: routed experts of a layer.
        layers: the model's numbers of the layers.
        model: which model; may be empty.
        source: where it comes from, for people.
    """

    routed: npt.NDArray[np.uint16]
    step: npt.NDArray[np.int64]
    experts: int
    layers: tuple[int, ...]
    model: str = ""
    source: str = ""

    @property
    def top_k(self) -> int:
        """Experts that a row is routed to in a layer."""
        return int(self.routed.shape[2])

    @property
    def steps(self) -> int:
        """Different steps."""
        return int(np.count_nonzero(np.diff(self.step))) + 1

    @property
    def most_rows(self) -> int:
        """Rows of the largest step."""
        return int(np.unique(self.step, return_counts=True)[1].max())


def checked(trace: RoutingTrace, name: str) -> RoutingTrace:
    """The trace, if it is one; raises UserError that says what is wrong with `name` where it is not."""
    routed = trace.routed
    if routed.ndim != 3 or 0 in routed.shape:
        raise UserError(f"{name}: experts are {list(routed.shape)}; expected [rows, layers, top_k], none of them 0")
    if trace.step.shape != routed.shape[:1]:
        raise UserError(f"{name}: {trace.step.size} steps of {routed.shape[0]} rows; expected one for each row")
    if len(trace.layers) != routed.shape[1] or list(trace.layers) != sorted(set(trace.layers)):
        raise UserError(f"{name}: layers {list(trace.layers)}; expected {routed.shape[1]} ascending numbers")
    if (np.diff(trace.step) < 0).any():
        row = int(np.argmax(np.diff(trace.step) < 0)) + 1
        raise UserError(f"{name}: row {row} is of step {trace.step[row]}, after {trace.step[row - 1]}; sort by step")
    if int(routed.max()) >= trace.experts:
        row, layer, _ = (int(i) for i in np.argwhere(routed >= trace.experts)[0])
        found = int(routed[row, layer].max())
        raise UserError(f"{name}: row {row}, layer {trace.layers[layer]}: expert {found} of {trace.experts}")
    if trace.experts * routed.shape[1] > 1 << 17:
        raise UserError(
            f"{name}: {routed.shape[1]} layers x {trace.experts} experts; at most 131072 cells can be simulated"
        )
    for begin in range(0, routed.shape[0], 4096):
        ordered = np.sort(routed[begin : begin + 4096], axis=2)
        twice = (ordered[:, :, 1:] == ordered[:, :, :-1]).any(axis=2)
        if twice.any():
            row, layer = (int(i) for i in np.argwhere(twice)[0])
            raise UserError(
                f"{name}: row {begin + row}, layer {trace.layers[layer]}: an expert twice; expected top_k different"
            )
    return trace


def load(paths: Sequence[Path], experts: int | None = None) -> RoutingTrace:
    """Reads one .npz or .jsonl trace, or the .npy files of requests (`experts`: how many a layer has; only for them).

    Raises UserError on what is no trace, OSError.
    """
    if {path.suffix for path in paths} == {".npy"}:
        if experts is None:
            raise UserError(f"{paths[0]}: does not say how many experts a layer has; give --experts")
        arrays = [_array(path) for path in paths]
        return checked(from_requests(arrays, experts, ", ".join(path.name for path in paths)), str(paths[0]))
    if len(paths) != 1:
        raise UserError(f"{paths[1]}: one trace at a time; only .npy files of requests are taken together")
    (path,) = paths
    if path.suffix == ".npz":
        return checked(_from_npz(path), str(path))
    if path.suffix == ".jsonl":
        return checked(_from_jsonl(path), str(path))
    raise UserError(f"{path}: expected a trace: .npz, .jsonl, or .npy of requests")


def save(trace: RoutingTrace, path: Path) -> None:
    """Writes a trace in the form that the name says, in one stroke. Raises UserError on another name, OSError."""
    about = {
        "schema": SCHEMA,
        "experts": trace.experts,
        "layers": list(trace.layers),
        "model": trace.model,
        "source": trace.source,
    }
    if path.suffix == ".npz":
        stream = io.BytesIO()
        np.savez_compressed(stream, experts=trace.routed, step=trace.step, about=np.array(json.dumps(about)))
        atomic.write(path, stream.getvalue())
    elif path.suffix == ".jsonl":
        atomic.write(path, _jsonl(trace, about).encode())
    else:
        raise UserError(f"{path}: expected a name that ends in .npz or .jsonl")


def from_requests(requests: Sequence[npt.NDArray[Any]], experts: int, source: str) -> RoutingTrace:
    """Of requests' routed experts [tokens, layers, top_k] that run side by side: token i of each makes step i.

    Raises UserError where their layers or top_k differ.
    """
    shapes = {array.shape[1:] for array in requests}
    if len(shapes) != 1 or any(array.ndim != 3 for array in requests):
        raise UserError(
            f"{source}: shapes {[list(a.shape) for a in requests]}; "
            "expected [tokens, layers, top_k], equal but for tokens"
        )
    joined = np.concatenate(requests)
    if joined.size and (int(joined.min()) < 0 or int(joined.max()) > 0xFFFF):
        raise UserError(f"{source}: expert {int(joined.min())} to {int(joined.max())}; expected 0 to {experts - 1}")
    step = np.concatenate([np.arange(array.shape[0], dtype=np.int64) for array in requests])
    order = np.argsort(step, kind="stable")
    layers = tuple(range(joined.shape[1]))
    return RoutingTrace(joined[order].astype(np.uint16), step[order], experts, layers, "", source)


def _array(path: Path) -> npt.NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UserError(f"{path}: no array of numpy: {error}") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        raise UserError(f"{path}: expected an array of integers")
    return array


def _from_npz(path: Path) -> RoutingTrace:
    try:
        with np.load(path, allow_pickle=False) as parts:
            about = _about(str(parts["about"]), path)
            routed, step = parts["experts"], parts["step"]
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no routing trace: {error}") from None
    if (
        routed.dtype.kind not in "iu"
        or step.dtype.kind not in "iu"
        or (routed.size and not 0 <= int(routed.min()) <= int(routed.max()) <= 0xFFFF)
    ):
        raise UserError(f"{path}: experts {routed.dtype}, step {step.dtype}; expected integers, experts of 0 to 65535")
    return RoutingTrace(routed.astype(np.uint16), step.astype(np.int64), *about)


def _from_jsonl(path: Path) -> RoutingTrace:
    routed: list[list[list[list[int]]]] = []
    steps: list[int] = []
    with path.open(encoding="utf-8") as lines:
        about = _about(next(lines, ""), path)
        layers = about[1]
        for number, line in enumerate(lines, 2):
            due = layers[(number - 2) % len(layers)]
            try:
                found = json.loads(line)
                step, layer, rows = int(found["step"]), int(found["layer"]), found["experts"]
                if due == layers[0]:
                    steps.append(step)
                    routed.append([])
                if (step, layer) != (steps[-1], due) or (routed[-1] and len(rows) != len(routed[-1][0])):
                    raise ValueError(f"expected layer {due} of step {steps[-1]}, as many rows as its others")
                routed[-1].append(rows)
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}:{number}: {error}") from None
    if not routed or len(routed[-1]) != len(layers):
        raise UserError(f"{path}: ends in the midst of a step, or has none")
    try:
        blocks = [np.array(of_step).transpose(1, 0, 2) for of_step in routed]
        joined = np.concatenate(blocks)
        if joined.dtype.kind not in "iu" or int(joined.min()) < 0 or int(joined.max()) > 0xFFFF:
            raise ValueError("numbers of experts: expected integers of 0 to 65535")
    except ValueError as error:
        raise UserError(f"{path}: rows of different shapes, or no numbers: {error}") from None
    step_of_row = np.repeat(np.array(steps, np.int64), [block.shape[0] for block in blocks])
    return RoutingTrace(joined.astype(np.uint16), step_of_row, *about)


def _about(text: str, path: Path) -> tuple[int, tuple[int, ...], str, str]:
    try:
        about = json.loads(text)
        if about["schema"] != SCHEMA:
            raise UserError(f"{path}: schema {about['schema']!r}; expected {SCHEMA!r}")
        experts, layers = int(about["experts"]), tuple(int(layer) for layer in about["layers"])
        model, source = str(about.get("model", "")), str(about.get("source", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: no routing trace: its heading: {error}") from None
    if not layers or experts < 1:
        raise UserError(f"{path}: {experts} experts in {len(layers)} layers; expected at least one of each")
    return experts, layers, model, source


def _jsonl(trace: RoutingTrace, about: dict[str, object]) -> str:
    lines = [json.dumps(about)]
    ends = np.append(np.flatnonzero(np.diff(trace.step)) + 1, trace.step.size)
    for begin, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        step = int(trace.step[begin])
        for i, layer in enumerate(trace.layers):
            rows = trace.routed[begin:end, i].tolist()
            lines.append(json.dumps({"step": step, "layer": layer, "experts": rows}))
    return "\n".join(lines) + "\n"
