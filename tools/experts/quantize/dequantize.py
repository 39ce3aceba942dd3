"""Writes a pack back as safetensors, a file a layer, with the names that the checkpoint had."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import planes
from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import INDEX
from tools.experts.checkpoint.writer import Writer
from tools.experts.quantize import naming
from tools.experts.quantize.packs import Pack
from tools.files import atomic

Bytes = NDArray[np.uint8]
_Rules = list[dict[str, Any]]

# What can be written, with safetensors' dtype of a weight.
FORMS = {"bf16": "BF16", "f32": "F32", "mxfp4": "I8"}


def write(
    pack: Pack, path: Path, form: str, layers: list[int] | None = None, advance: Callable[[int], None] = lambda _: None
) -> int:
    """Writes the folder `path`, which must not be there, in one stroke; returns its bytes.

    Values are exact in every form of FORMS, but that 2^128 and more is infinite in bf16 and f32. An expert is in memory
    at a time.

    Args:
        pack: what is written; with a delta its 4-bit weights.
        path: the folder.
        form: of FORMS.
        layers: only these; by default all.
        advance: told the bytes that are done, as they are.

    Raises UserError for a folder that is there, layers that are not, damaged records; OSError.
    """
    if path.exists():
        raise UserError(f"{path}: is there already; name a folder that is not")
    header = pack.base.header
    if missing := sorted(set(layers or ()) - set(header.layers)):
        raise UserError(f"{pack.base.path}: no layer {missing[0]}; it has {header.layers[0]} to {header.layers[-1]}")
    chosen = sorted(set(layers)) if layers else list(header.layers)
    rules = naming.of(pack.base)
    draft = path.with_name(f".{path.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        weight_map: dict[str, str] = {}
        for at, layer in enumerate(chosen):
            file = f"model-{at + 1:05}-of-{len(chosen):05}.safetensors"
            there = [expert for expert in range(header.experts) if (layer, expert) in pack.base]
            stated = dict(_stated(pack, rules, form, layer, there))
            with Writer(draft / file, stated) as writer:
                for expert in there:
                    for name, array in _tensors(pack, rules, form, layer, expert):
                        writer.put(name, array)
                        advance(array.nbytes)
            weight_map |= dict.fromkeys(stated, file)
        size = sum(file.stat().st_size for file in draft.iterdir())
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
        atomic.write(draft / INDEX, json.dumps(index, indent=1).encode())
        atomic.write(draft / "config.json", json.dumps(_config(pack, rules, form), indent=1).encode())
        draft.rename(path)
        atomic.sync_folder(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return size


def total(pack: Pack, form: str, layers: int) -> int:
    """Bytes of the tensors of so many layers."""
    weights = 3 * pack.hidden * pack.intermediate * layers * pack.base.header.experts
    return {"bf16": 2 * weights, "f32": 4 * weights, "mxfp4": weights // 2 + weights // 32}[form]


def _stated(
    pack: Pack, rules: _Rules, form: str, layer: int, experts: list[int]
) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    for expert in experts:
        for matrix, (rows, columns) in planes.shapes(pack.hidden, pack.intermediate).items():
            weight = naming.name(rules, layer, expert, matrix)
            if form == "mxfp4":
                yield weight, ("I8", (rows, columns // 2))
                yield f"{weight.removesuffix('weight')}scale", ("F8_E8M0", (rows, columns // 32))
            else:
                yield weight, (FORMS[form], (rows, columns))


def _tensors(pack: Pack, rules: _Rules, form: str, layer: int, expert: int) -> Iterator[tuple[str, NDArray[Any]]]:
    for matrix, (codes, scales, nibbles) in pack.matrices(layer, expert).items():
        weight = naming.name(rules, layer, expert, matrix)
        if form == "mxfp4":
            yield weight, planes.join_nibbles(planes.CODE_TO_NIBBLE[codes] if nibbles is None else nibbles)
            yield f"{weight.removesuffix('weight')}scale", scales
            continue
        values = planes.decode(codes, scales) if nibbles is None else planes.decode_nibbles(nibbles, scales)
        with np.errstate(over="ignore"):
            floats = values.astype(np.float32)
        # Three bits of significand at most: bfloat16 is the upper half, without rounding.
        yield weight, floats if form == "f32" else (floats.view(np.uint32) >> 16).astype(np.uint16)


def _config(pack: Pack, rules: _Rules, form: str) -> dict[str, Any]:
    header = pack.base.header
    about = {
        "n_routed_experts": header.experts,
        "hidden_size": pack.hidden,
        "moe_intermediate_size": pack.intermediate,
        "model_type": header.extra.get("model_type", ""),
        "swiglu_limit": header.extra.get("swiglu_limit"),
        "moet": {"from": pack.base.content, "checkpoint": header.checkpoint, "form": form, "delta": pack.kind},
    }
    drafters = [one["first"] for one in rules if one["first"]]
    return about | ({"num_hidden_layers": drafters[0]} if drafters else {})
