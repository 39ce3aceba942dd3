"""Writes a small checkpoint with the names and types of a real one, so that every path runs on real files."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tools.cli.errors import UserError
from tools.experts.checkpoint.checkpoint import INDEX, MATRICES
from tools.experts.checkpoint.writer import Writer
from tools.experts.synthetic import tensors
from tools.experts.synthetic.models import MODELS, Model, config
from tools.files import atomic


def write(
    path: Path,
    model: str,
    *,
    layers: int = 2,
    experts: int = 4,
    hidden: int = 512,
    intermediate: int = 256,
    seed: int = 0,
    drafter: bool = False,
) -> Path:
    """Writes the folder `path` and returns it: config.json, the index, one file a layer.

    Args:
        path: made if it is not there; the index is written last.
        model: one of MODELS.
        layers: with routed experts; they begin where the model's do.
        experts: of a layer.
        hidden: a multiple of 64.
        intermediate: a multiple of 64.
        seed: 0 or more; the same gives the same bytes.
        drafter: whether there is a drafter's layer, `mtp.0`, too (DeepSeek V4).

    Raises UserError for a model or a size that cannot be, OSError.
    """
    if model not in MODELS:
        raise UserError(f"{model}: no model of which a checkpoint can be made up; there are {', '.join(MODELS)}")
    if min(layers, experts, hidden, intermediate) < 1 or hidden % 64 or intermediate % 64:
        raise UserError("layers and experts must be 1 or more, hidden and intermediate multiples of 64")
    if seed < 0:
        raise UserError(f"seed {seed}; expected 0 or more")
    kind = MODELS[model]
    path.mkdir(parents=True, exist_ok=True)
    names = [f"{kind.prefix}{kind.first + at}" for at in range(layers)] + ["mtp.0"] * drafter
    weight_map: dict[str, str] = {}
    for at, name in enumerate(names):
        file = f"model-{at + 1:05}-of-{len(names):05}.safetensors"
        generator = np.random.default_rng([seed, at])
        stated = dict(_stated(kind, name, experts, hidden, intermediate))
        with Writer(path / file, stated) as writer:
            writer.put(f"{name}.{kind.block}.gate.weight", _bf16(generator, experts, hidden))
            for expert in range(experts):
                for matrix in MATRICES:
                    shape = (hidden, intermediate) if matrix == "w2" else (intermediate, hidden)
                    values = tensors.weights(generator, *shape, kind.degrees)
                    for part, (_, array) in tensors.stored(kind.scheme, values, kind.positive_zeros).items():
                        writer.put(_name(kind, name, expert, matrix, part), array)
                    if kind.scheme == "nvfp4":
                        writer.put(_input_scale(kind, name, expert, matrix), np.array(0.01, dtype=np.float32))
        weight_map |= dict.fromkeys(stated, file)
    about = json.dumps(config(kind, layers, experts, hidden, intermediate), indent=1)
    atomic.write(path / "config.json", about.encode())
    size = sum(file.stat().st_size for file in path.glob("model-*.safetensors"))
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    atomic.write(path / INDEX, json.dumps(index, indent=1).encode())
    return path


def _stated(
    kind: Model, name: str, experts: int, hidden: int, intermediate: int
) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Names, dtypes and shapes of a layer's tensors."""
    yield f"{name}.{kind.block}.gate.weight", ("BF16", (experts, hidden))
    for expert in range(experts):
        for matrix in MATRICES:
            shape = (hidden, intermediate) if matrix == "w2" else (intermediate, hidden)
            for part, (dtype, array) in tensors.stored(kind.scheme, np.ones(shape)).items():
                yield _name(kind, name, expert, matrix, part), (dtype, array.shape)
            if kind.scheme == "nvfp4":
                yield _input_scale(kind, name, expert, matrix), ("F32", ())


def _name(kind: Model, layer: str, expert: int, matrix: str, part: str) -> str:
    return f"{layer}.{kind.block}.experts.{expert}.{kind.matrices[matrix]}.{kind.parts[part]}"


def _input_scale(kind: Model, layer: str, expert: int, matrix: str) -> str:
    return f"{layer}.{kind.block}.experts.{expert}.{kind.matrices[matrix]}.input_scale"


def _bf16(
    generator: np.random.Generator, rows: int, columns: int
) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint16]]":
    values = generator.normal(0, 0.02, (rows, columns)).astype(np.float32)
    return np.asarray(values.view(np.uint32) >> 16, dtype=np.uint16)
