"""Files of routing traces. They come from elsewhere: nothing that they say of themselves is believed unseen.

Two forms, both with what RoutingTrace has:

- `.npz`: `experts` uint16 [rows, layers, top_k], `step` int64 [rows], and `about`, a JSON object as one string:
  {"schema": "moet.routing-trace.v1", "experts": 384, "layers": [3, 4, ...], "model": "...", "source": "..."}
- `.jsonl`: that object on the first line, then a line for each step and layer, steps ascending, all layers of a step
  together: {"step": 0, "layer": 3, "experts": [[ids of row 0], [ids of row 1], ...]}

A third is read only: `.npy` integers [tokens, layers, top_k], one file a request, as vLLM returns a request's routed
experts; token i of every request makes step i.
"""

import io
import json
import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as numpy_format

from tools.cli.errors import UserError
from tools.files import atomic

from .trace import MOST_ROUTED, RoutingTrace, checked, from_requests

SCHEMA = "moet.routing-trace.v1"
_MOST_BYTES = 8 * MOST_ROUTED
_LONGEST_LINE = 1 << 24
_HEADERS = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}

About = tuple[int, tuple[int, ...], str, str]


def load(paths: Sequence[Path], experts: int | None = None) -> RoutingTrace:
    """Reads one .npz or .jsonl trace, or the .npy files of requests (`experts`: how many a layer has; only for them).

    Raises UserError on what is no trace, OSError.
    """
    if {path.suffix for path in paths} == {".npy"}:
        if experts is None:
            raise UserError(f"{paths[0]}: does not say how many experts a layer has; give --experts")
        return checked(from_requests(_requests(paths), experts, _names(paths)), str(paths[0]))
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


def _requests(paths: Sequence[Path]) -> list[npt.NDArray[Any]]:
    arrays, left = [], _MOST_BYTES
    for path in paths:
        with path.open("rb") as stream, _in_one_line(f"{path}: no array of numpy"):
            array = _array(stream, left)
        if array.dtype.kind not in "iu":
            raise UserError(f"{path}: expected an array of integers")
        arrays.append(array)
        left -= array.nbytes
    return arrays


def _names(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(path.name for path in paths[:3]) + more


def _from_npz(path: Path) -> RoutingTrace:
    with path.open("rb") as stream, _in_one_line(f"{path}: no routing trace"), zipfile.ZipFile(stream) as parts:
        with parts.open("about.npy") as part:
            about = _about(str(_array(part, _LONGEST_LINE)))
        with parts.open("experts.npy") as part:
            routed = _array(part, _MOST_BYTES)
        with parts.open("step.npy") as part:
            step = _array(part, _MOST_BYTES)
        if (
            routed.dtype.kind not in "iu"
            or step.dtype.kind not in "iu"
            or (routed.size and not 0 <= int(routed.min()) <= int(routed.max()) <= 0xFFFF)
        ):
            raise ValueError(f"experts {routed.dtype}, step {step.dtype}; expected integers, experts of 0 to 65535")
        return RoutingTrace(routed.astype(np.uint16), step.astype(np.int64), *about)


def _array(stream: IO[bytes], most: int) -> npt.NDArray[Any]:
    """The array that a stream in numpy's format has, to its end.

    Raises ValueError where its heading promises more than `most` bytes, before anything is allocated for them, or
    other than what follows; and what numpy and zipfile raise.
    """
    version = numpy_format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of numpy's format; expected 1.0 or 2.0")
    shape, by_columns, dtype = _HEADERS[version](stream)
    size = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or size > most:
        raise ValueError(f"an array {list(shape)} of {dtype}; expected at most {most:,} bytes, and no objects")
    data = stream.read(size)
    # What a zip file's checksum says comes out at the end of the data, not before.
    if len(data) != size or stream.read(1):
        raise ValueError(f"an array {list(shape)} of {dtype}: expected {size} bytes of data")
    if not size:
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")


def _from_jsonl(path: Path) -> RoutingTrace:
    blocks: list[npt.NDArray[np.uint16]] = []
    steps: list[int] = []
    of_step: list[npt.NDArray[np.uint16]] = []
    routed = number = 0
    with path.open("rb") as lines:
        with _in_one_line(f"{path}: no routing trace: its heading"):
            about = _about(_line(lines))
        layers = about[1]
        while True:
            number += 1
            due = layers[len(of_step)]
            with _in_one_line(f"{path}:{number + 1}"):
                if not (line := _line(lines)):
                    break
                step, layer, rows = _numbers(line)
                if not of_step:
                    steps.append(step)
                if (step, layer) != (steps[-1], due) or (of_step and len(rows) != len(of_step[0])):
                    raise ValueError(f"expected layer {due} of step {steps[-1]}, as many rows as its others")
                before = of_step or blocks[-1:]
                if before and rows.shape[-1] != before[0].shape[-1]:
                    raise ValueError(f"rows of different shapes: expected {before[0].shape[-1]} experts in each")
                routed += rows.size
                if routed > MOST_ROUTED:
                    raise ValueError(f"more than {MOST_ROUTED:,} routed experts can not be simulated: cut the trace")
            of_step.append(rows)
            if len(of_step) == len(layers):
                blocks.append(np.stack(of_step, axis=1))
                of_step = []
    if of_step or not blocks:
        raise UserError(f"{path}: ends in the midst of a step, or has none")
    step_of_row = np.repeat(np.array(steps, np.int64), [block.shape[0] for block in blocks])
    return RoutingTrace(np.concatenate(blocks), step_of_row, *about)


def _line(stream: IO[bytes]) -> str:
    line = stream.readline(_LONGEST_LINE + 1)
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"a line of more than {_LONGEST_LINE:,} bytes")
    return line.decode("utf-8")


def _numbers(line: str) -> tuple[int, int, npt.NDArray[np.uint16]]:
    """Step, layer, and experts [rows, top_k] of a line. Raises ValueError, and what json raises."""
    found = json.loads(line)
    if not isinstance(found, dict) or {type(found.get(name)) for name in ("step", "layer")} != {int}:
        raise ValueError("expected step and layer, whole numbers, and experts")
    if not 0 <= found["step"] <= 1 << 62:
        raise ValueError("step: expected 0 to 2**62")
    try:
        rows = np.array(found.get("experts"))
    except ValueError:
        raise ValueError("rows of different shapes") from None
    if rows.ndim != 2 or rows.dtype.kind not in "iu" or not 0 <= int(rows.min()) <= int(rows.max()) <= 0xFFFF:
        raise ValueError("experts: expected integers of 0 to 65535, [rows, top_k]")
    return found["step"], found["layer"], rows.astype(np.uint16)


def _about(text: str) -> About:
    """What a heading says: experts, layers, model, source. Raises ValueError, and what json raises."""
    about = json.loads(text)
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        found = about.get("schema") if isinstance(about, dict) else about
        raise ValueError(f"schema {found!r:.60}; expected {SCHEMA!r}")
    experts, layers = about.get("experts"), about.get("layers")
    if type(experts) is not int or not isinstance(layers, list) or any(type(layer) is not int for layer in layers):
        raise ValueError("expected experts, a whole number, and layers, a list of them")
    if not layers or not 1 <= experts <= 1 << 16 or min(layers) < 0:
        raise ValueError(
            f"{experts:,} experts in {len(layers)} layers; expected 1 to 65536, at least one, and none below 0"
        )
    model, source = about.get("model", ""), about.get("source", "")
    if not isinstance(model, str) or not isinstance(source, str) or not (model + source).isprintable():
        raise ValueError("model, source: expected text on one line")
    return experts, tuple(layers), model, source


@contextmanager
def _in_one_line(what: str) -> Iterator[None]:
    """Raises UserError `what: why` for any error of the block.

    Of bytes by chance, zipfile, zlib, numpy and json raise more kinds than they say.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{what}: {why[:300]}") from None


def _jsonl(trace: RoutingTrace, about: dict[str, object]) -> str:
    lines = [json.dumps(about)]
    ends = np.append(np.flatnonzero(np.diff(trace.step)) + 1, trace.step.size)
    for begin, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        step = int(trace.step[begin])
        for i, layer in enumerate(trace.layers):
            rows = trace.routed[begin:end, i].tolist()
            lines.append(json.dumps({"step": step, "layer": layer, "experts": rows}))
    return "\n".join(lines) + "\n"
