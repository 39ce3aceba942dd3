"""A mixture-of-experts model in numpy, small and whole: routers, clamped SwiGLU experts, weights read out of slots."""

import numpy as np
import numpy.typing as npt

from ..drive import Pass, Table
from ..slots import Cells, Copy

Array = npt.NDArray[np.float32]
_CLAMP = np.float32(10)


class TinyMoe:
    """An engine for drive.run. What it computes of a row does not depend on the rows beside it.

    Attributes:
        x: float32 [rows, hidden], the step's input; set by whoever runs a step.
        y: float32 [rows, hidden], its output.
        passes: passes over all layers.
        copies: copies into slots.
        failing: copies that will fail yet.
        base: what an expert that is not in the table is computed from, as `store`; None: it gives zero.
    """

    def __init__(
        self, layers: int, experts: int, top_k: int, slots: int, seed: int, hidden: int = 16, inter: int = 8
    ) -> None:
        rng = np.random.default_rng(seed)
        self.layers, self.experts, self.top_k = layers, experts, top_k
        self._router = rng.standard_normal((layers, experts, hidden), dtype=np.float32)
        size = 3 * hidden * inter
        self._shape = (hidden, inter)
        # Of every cell w1 and w3 [inter, hidden] and w2 [hidden, inter], as one row; in slots the same.
        self.store = rng.standard_normal((layers * experts, size), dtype=np.float32)
        self.memory = np.full((slots, size), np.nan, np.float32)
        self.x = np.zeros((0, hidden), np.float32)
        self.y = self.x
        self.passes = self.copies = self.failing = 0
        self.base: Array | None = None

    def resident(self, x: Array) -> Array:
        """The forward with every expert resident, straight from the store."""
        hidden, _, _ = self._forward(x, self.store, np.arange(self.store.shape[0], dtype=np.int32))
        return hidden

    def whole(self, rows: tuple[int, int], table: Table) -> Pass:
        """All layers; an expert that is not in the table gives zero."""
        self.passes += 1
        begin, end = rows
        self.y[begin:end], used, zeros = self._forward(self.x[begin:end], self.memory, table)
        cells, count = np.unique(used, return_counts=True)
        return Pass(cells, count.astype(np.int64), zeros)

    def route(self, rows: tuple[int, int], layer: int) -> tuple[Cells, npt.NDArray[np.int64]]:
        """Runs a layer's router."""
        begin, end = rows
        if layer == 0:
            self.y[begin:end] = self.x[begin:end]
        used = [self._routed(row, layer)[0] for row in self.y[begin:end]]
        cells, count = np.unique(np.concatenate(used), return_counts=True)
        return cells, count.astype(np.int64)

    def compute(self, rows: tuple[int, int], layer: int, table: Table) -> None:
        """Computes the experts of a layer that was routed."""
        for row in range(*rows):
            self.y[row], _, zeros = self._layer(self.y[row], layer, self.memory, table)
            assert zeros == 0

    def copy(self, copies: tuple[Copy, ...]) -> None:
        """Copies experts into slots."""
        if self.failing:
            self.failing -= 1
            for copy in copies:
                self.memory[copy.slot] = np.nan
            raise OSError(5, "the store cannot be read")
        for copy in copies:
            self.memory[copy.slot] = self.store[copy.cell]
            self.copies += 1

    def _forward(self, x: Array, memory: Array, table: Table) -> tuple[Array, Cells, int]:
        hidden, used, zeros = x.copy(), [], 0
        for layer in range(self.layers):
            for row in range(x.shape[0]):
                hidden[row], cells, missed = self._layer(hidden[row], layer, memory, table)
                used.append(cells)
                zeros += missed
        return hidden, np.concatenate(used), zeros

    def _routed(self, row: Array, layer: int) -> tuple[Cells, Array]:
        score = self._router[layer] @ row
        best = np.sort(np.argsort(-score, kind="stable")[: self.top_k])
        weight = np.exp(score[best] - score[best].max())
        return best + layer * self.experts, weight / weight.sum()

    def _layer(self, row: Array, layer: int, memory: Array, table: Table) -> tuple[Array, Cells, int]:
        cells, weights = self._routed(row, layer)
        out, zeros = np.zeros_like(row), 0
        for cell, weight in zip(cells.tolist(), weights, strict=True):
            if table[cell] < 0:
                zeros += 1
                if self.base is not None:
                    out += weight * self._expert(row, self.base[cell])
                continue
            out += weight * self._expert(row, memory[table[cell]])
        hidden: Array = row + out
        return hidden / np.sqrt(np.mean(hidden * hidden) + np.float32(1e-6)), cells, zeros

    def _expert(self, row: Array, weights: Array) -> Array:
        hidden, inter = self._shape
        w1, w3, w2 = weights.reshape(3, -1)
        gate = np.minimum(w1.reshape(inter, hidden) @ row, _CLAMP)
        up = np.clip(w3.reshape(inter, hidden) @ row, -_CLAMP, _CLAMP)
        out: Array = w2.reshape(hidden, inter) @ (gate / (1 + np.exp(-gate)) * up)
        return out
