"""The routed experts of a checkpoint in safetensors files, read one matrix at a time."""

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.cli.errors import UserError
from tools.experts.checkpoint import schemes
from tools.experts.checkpoint.headers import Tensor
from tools.experts.checkpoint.schemes import Form, Matrix
from tools.experts.checkpoint.stated import INDEX, Stated, listed

__all__ = ["INDEX", "MATRICES", "Checkpoint", "Matrix", "Scratch", "identity"]

# In the order of a slot.
MATRICES = ("w1", "w3", "w2")

# Names of one fact in configurations of different models.
_FACTS = {
    "experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "hidden": ("hidden_size",),
    "intermediate": ("moe_intermediate_size",),
}

_Parts = dict[str, Tensor]


class Scratch:
    """Memory of one thread for the matrices of one expert, used again for the next expert's."""

    def __init__(self) -> None:
        self._buffers: dict[object, NDArray[np.uint8]] = {}

    def buffer(self, key: object, size: int) -> NDArray[np.uint8]:
        """The buffer of `key`, of `size` bytes; its contents are whatever was there."""
        found = self._buffers.get(key)
        if found is None or found.size != size:
            found = self._buffers[key] = np.empty(size, dtype=np.uint8)
        return found


class Checkpoint:
    """The routed experts of a checkpoint; reads may come from many threads at once.

    Attributes:
        path: its folder.
        identity: SHA-256 over config.json, the index and every file's header, in hex: the same for the same checkpoint,
            wherever it lies.
        config: config.json.
        model_type: as the configuration has it, "" where it does not.
        swiglu_limit: what the model clamps gate and up to; None where it clamps nothing (the configuration has none,
            or 0).
        layers: numbers of the layers with quantized routed experts, ascending. A drafter's layer `mtp.J` is
            num_hidden_layers + J.
        plain_layers: those whose experts are not quantized; they are left alone.
        experts: of a layer.
        hidden: size of the model's hidden state.
        intermediate: size of an expert's.
        scheme: "mxfp4", "fp8_block" or "nvfp4".
        expert_bytes: what an expert takes on disk.
        drafter_from: the number of a drafter's first layer; None where there is none.
    """

    def __init__(self, path: Path, found: Stated, layers: Sequence[int] | None) -> None:
        """Reads no file; see open()."""
        self.path, self.identity, self.config = path, found.identity, found.config
        text = found.text
        model_type = text.get("model_type", found.config.get("model_type"))
        self.model_type = model_type if isinstance(model_type, str) and model_type.isprintable() else ""
        self.swiglu_limit = _limit(path, text.get("swiglu_limit"))
        there = sorted({layer for layer, _, _ in found.matrices})
        asked = set(there if layers is None else layers)
        self._matrices = {key: parts for key, parts in found.matrices.items() if key[0] in asked}
        self._forms = {key: schemes.form(found.names[key], parts) for key, parts in self._matrices.items()}
        self._names, self.drafter_from = found.names, found.drafter_from
        by_layer: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for key in sorted(self._matrices):
            by_layer[key[0]].append(key)
        self.plain_layers = tuple(one for one in by_layer if all(self._forms[key] is None for key in by_layer[one]))
        self.layers = tuple(one for one in by_layer if one not in self.plain_layers)
        if layers is not None and (missing := sorted(asked - set(self.layers))):
            raise UserError(
                f"{path}: no quantized routed experts in layer {listed(missing)}; layers with routed experts:"
                f" {listed(there)}"
            )
        if not self.layers:
            raise UserError(f"{path}: no quantized routed experts (expected tensors such as {_EXAMPLES})")
        self.experts, forms = self._check(by_layer)
        self.scheme = forms["w1"].scheme
        self.intermediate, self.hidden = forms["w1"].rows, forms["w1"].columns
        self._check_config(text)
        first = self.layers[0]
        self.expert_bytes = sum(one.size for name in MATRICES for one in self._matrices[first, 0, name].values())
        self._lock, self._files = threading.Lock(), dict[Path, int]()

    @classmethod
    def open(cls, path: Path, layers: Sequence[int] | None = None) -> "Checkpoint":
        """Opens the folder; `layers` are the only ones whose experts are looked at, by default all.

        Raises UserError when files, tensors or experts are missing, or do not go together.
        """
        return cls(path, Stated(path), layers)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; a later read opens them again."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])

    def read(self, layer: int, expert: int, matrix: str, scratch: Scratch | None = None) -> Matrix:
        """One matrix ("w1" gate, "w3" up, "w2" down), in arrays of its own.

        With `scratch`, the arrays are the scratch's, until the next read of a matrix of that name with it.

        Raises UserError when it is not there or the file has become shorter.
        """
        key = (layer, expert, matrix)
        found = self._forms.get(key)
        if layer not in self.layers or found is None:
            raise UserError(f"{self.path}: no quantized {matrix} of layer {layer}, expert {expert}")

        def read(part: str, tensor: Tensor) -> NDArray[np.uint8]:
            empty = (
                np.empty(tensor.size, dtype=np.uint8)
                if scratch is None
                else scratch.buffer((matrix, part), tensor.size)
            )
            self._fill(empty, tensor)
            return empty

        return schemes.matrix(self._names[key], self._matrices[key], found, read)

    def name(self, layer: int, expert: int, matrix: str) -> str:
        """The name of the tensor of a matrix's weight. Raises KeyError."""
        return self._names[layer, expert, matrix]

    def _fill(self, buffer: NDArray[np.uint8], tensor: Tensor) -> None:
        descriptor, done = self._file(tensor.path), 0
        while done < tensor.size:
            try:
                count = os.preadv(descriptor, [buffer[done:].data], tensor.offset + done)
            except OSError as error:
                raise UserError(f"{tensor.path}: {error.strerror} at byte {tensor.offset + done}") from None
            if count == 0:
                raise UserError(
                    f"{tensor.path}: ends at byte {tensor.offset + done}, while it was read; fetch it again"
                )
            done += count

    def _file(self, path: Path) -> int:
        with self._lock:
            if path not in self._files:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return self._files[path]

    def _check(self, by_layer: Mapping[int, list[tuple[int, int, str]]]) -> tuple[int, dict[str, Form]]:
        counts = {layer: 1 + max(key[1] for key in by_layer[layer]) for layer in self.layers}
        experts = Counter(counts.values()).most_common(1)[0][0]
        forms: dict[str, Form] = {}
        for layer in self.layers:
            if counts[layer] != experts:
                raise UserError(f"{self.path}: layer {layer} has {counts[layer]} experts, others have {experts}")
            for expert in range(experts):
                for name in MATRICES:
                    found = self._forms.get((layer, expert, name))
                    if found is None:
                        raise UserError(
                            f"{self.path}: no quantized {name} of layer {layer}, expert {expert}; incomplete"
                        )
                    if forms.setdefault(name, found) != found:
                        raise UserError(
                            f"{self._names[layer, expert, name]}: {_said(found)}, but {_said(forms[name])} in layer"
                            f" {self.layers[0]}; take them one after the other, with --layers"
                        )
        up, down = forms["w3"], forms["w2"]
        if up != forms["w1"] or (down.scheme, down.rows, down.columns) != (up.scheme, up.columns, up.rows):
            raise UserError(
                f"{self.path}: w1 {_said(forms['w1'])}, w3 {_said(up)}, w2 {_said(down)} make no expert: expected"
                " [I, H], [I, H] and [H, I] of one scheme"
            )
        return experts, forms

    def _check_config(self, text: Mapping[str, Any]) -> None:
        for fact, keys in _FACTS.items():
            for key in keys:
                if isinstance(stated := text.get(key), int) and stated != getattr(self, fact):
                    raise UserError(
                        f"{self.path}: config.json says {key} {stated}, its tensors {getattr(self, fact)}; they are of"
                        " different models"
                    )
        quantization = self.config.get("quantization_config") or text.get("quantization_config") or {}
        if not isinstance(quantization, dict):
            raise UserError(f"{self.path}: config.json has a quantization_config {quantization!r}; expected an object")
        block = quantization.get("weight_block_size")
        if self.scheme == "fp8_block" and block not in (None, [128, 128]):
            raise UserError(f"{self.path}: weight_block_size {block}; only [128, 128] can be read")


def identity(path: Path) -> str:
    """The identity of the checkpoint in a folder, whatever its experts are like. Raises UserError."""
    return Stated(path).identity


def _limit(path: Path, stated: object) -> float | None:
    """The clamp of a configuration; 0, with which every expert would be 0, clamps nothing."""
    if stated is None or (stated == 0 and stated is not False):
        return None
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 < stated < 2**127:
        raise UserError(f"{path}: config.json says swiglu_limit {stated!r}; expected a positive number")
    return float(stated)


_EXAMPLES = "layers.3.ffn.experts.7.w1.weight or model.layers.3.mlp.experts.7.gate_proj.weight"


def _said(one: Form) -> str:
    return f"{one.rows} x {one.columns} {one.scheme}"
