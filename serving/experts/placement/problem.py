"""What is placed: cells with a share of routing and a size, memories with a budget, floors of layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tools.cli.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Sums of bytes stay exact in int64 and in float64 below this.
MOST_BYTES = 2**53


class PlanError(UserError):
    """A plan that cannot be made: one line with the term that breaks and what to do."""


@dataclass(frozen=True)
class Problem:
    """One placement to be found. A cell is one expert of one layer.

    Attributes:
        layers: numbers of the MoE layers, as the model counts them, L of them.
        share: [L, E] float64; each row is a layer's routing and sums to 1.
        size: [L, E] int64, bytes that a cell takes in one memory.
        budgets: [B] int64, bytes for cells in each GPU memory, the fastest ones first.
        floors: [L] int64, cells that each layer must have in GPU memory at least.
        names: what each of the B memories is called in messages.
    """

    layers: tuple[int, ...]
    share: Floats
    size: Ints
    budgets: Ints
    floors: Ints
    names: tuple[str, ...]

    @property
    def experts(self) -> int:
        """Experts a layer, E."""
        return int(self.share.shape[1])

    @property
    def value(self) -> Floats:
        """[L, E]: share of all routing; every token goes through every layer, so that all layers weigh the same."""
        return self.share / len(self.layers)


def problem(
    layers: Sequence[int],
    share: Floats,
    size: Ints,
    budgets: Sequence[int],
    floors: Sequence[int] | int = 0,
    names: Sequence[str] | None = None,
) -> Problem:
    """Returns a checked Problem. Raises PlanError that names the term: shares, sizes, budgets or floors."""
    given = np.asarray(share, dtype=np.float64)
    sizes = np.asarray(size)
    if given.ndim != 2 or given.shape[0] != len(layers) or given.size == 0:
        raise PlanError(f"shares: expected a row for each of {len(layers)} layers, found shape {given.shape}")
    if sizes.shape != given.shape or sizes.dtype.kind not in "iu":
        raise PlanError(f"sizes: expected whole bytes of shape {given.shape}, found {sizes.dtype} {sizes.shape}")
    if len(set(layers)) != len(layers):
        raise PlanError(f"layers: {_first_twice(layers)} is there twice")
    _finite(given, layers)
    if int(sizes.min()) <= 0:
        raise PlanError("sizes: every cell must have one byte or more")
    if float(sizes.astype(np.float64).sum()) >= MOST_BYTES:
        raise PlanError(f"sizes: all cells together overflow {MOST_BYTES:,} bytes; check the geometry")
    held = np.zeros(len(budgets), dtype=np.int64)
    named = tuple(names) if names is not None else tuple(f"rank {index}" for index in range(len(budgets)))
    if not len(held):
        raise PlanError("budgets: expected one rank or more")
    for index, budget in enumerate(budgets):
        if not 0 <= budget < MOST_BYTES:
            raise PlanError(f"budget of {named[index]}: expected 0 to {MOST_BYTES:,} bytes, found {budget:,}")
        held[index] = budget
    if int(held.astype(object).sum()) >= MOST_BYTES:
        raise PlanError(f"budgets: together they overflow {MOST_BYTES:,} bytes")
    wanted = np.full(len(layers), floors, dtype=np.int64) if isinstance(floors, int) else np.asarray(floors, np.int64)
    if wanted.shape != (len(layers),):
        raise PlanError(f"floors: expected one a layer, {len(layers)}, found {wanted.size}")
    for layer, floor in zip(layers, wanted.tolist(), strict=True):
        if not 0 <= floor <= given.shape[1]:
            raise PlanError(f"floor of layer {layer}: expected 0 to {given.shape[1]} experts, found {floor}")
    return Problem(tuple(layers), given, sizes.astype(np.int64), held, wanted, named)


def gib(size: float) -> str:
    """A number of bytes in GiB, for people."""
    return f"{size / 2**30:,.2f} GiB"


def cut(text: str, most: int = 60) -> str:
    """What a file has, as a message of one line has it: escaped if need be, and no longer than `most` characters."""
    line = text if text.isprintable() else repr(text)
    return line if len(line) <= most else line[: most - 3] + "..."


def _finite(share: Floats, layers: Sequence[int]) -> None:
    for words, bad in (("is no number", ~np.isfinite(share)), ("is negative", share < 0)):
        if bad.any():
            row, expert = (int(index) for index in np.argwhere(bad)[0])
            raise PlanError(f"share of layer {layers[row]}, expert {expert}: {words} ({share[row, expert]})")
    if not share.any(axis=1).all():
        row = int(np.argmin(share.any(axis=1)))
        raise PlanError(f"shares of layer {layers[row]}: all are zero")


def _first_twice(layers: Sequence[int]) -> int:
    return next(layer for index, layer in enumerate(layers) if layer in layers[:index])
