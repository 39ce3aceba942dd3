"""Checkpoints for tests: random bytes in the names of DeepSeek V4, which cost nothing to make."""

import json
from pathlib import Path

import numpy as np

from kernels.common import planes
from tools.experts.checkpoint.checkpoint import INDEX
from tools.experts.checkpoint.writer import Writer


def checkpoint(path: Path, layers: int = 2, experts: int = 3, hidden: int = 128, intermediate: int = 64) -> Path:
    """Writes an MXFP4 checkpoint of random nibbles; the same every time."""
    path.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for layer in range(layers):
        stated: dict[str, tuple[str, tuple[int, ...]]] = {}
        for expert in range(experts):
            for matrix, (rows, columns) in planes.shapes(hidden, intermediate).items():
                base = f"layers.{layer}.ffn.experts.{expert}.{matrix}"
                stated[f"{base}.weight"] = ("I8", (rows, columns // 2))
                stated[f"{base}.scale"] = ("F8_E8M0", (rows, columns // 32))
        file = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
        generator = np.random.default_rng(layer)
        with Writer(path / file, stated) as writer:
            for name, (_, shape) in stated.items():
                least, most = (118, 124) if name.endswith("scale") else (0, 256)
                writer.put(name, generator.integers(least, most, shape, dtype=np.uint8))
        weight_map |= dict.fromkeys(stated, file)
    about = {"model_type": "deepseek_v4", "num_hidden_layers": layers, "swiglu_limit": 10.0}
    (path / "config.json").write_text(json.dumps(about))
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    return path


def contents(*folders: Path) -> dict[str, bytes]:
    """Files of finished packs, but the lock."""
    return {
        f"{folder.name}/{one.name}": one.read_bytes()
        for folder in folders
        for one in folder.iterdir()
        if one.name != "writer.lock"
    }
