"""Routing traces: which experts every row of every step was routed to, as recorded or made up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.cli.errors import UserError

# Of a trace, rows x layers x top_k; a simulation takes about 40 bytes for each.
MOST_ROUTED = 1 << 27
_LAST_STEP = 1 << 62


@dataclass(frozen=True)
class RoutingTrace:
    """Rows in the order of their steps.

    Attributes:
        routed: uint16 [rows, layers, top_k], each row's experts of a layer, all different.
        step: int64 [rows], 0 to 2**62, not descending; steps need not be consecutive.
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
    if routed.size > MOST_ROUTED:
        raise UserError(f"{name}: {routed.size:,} routed experts; at most {MOST_ROUTED:,} can be simulated: cut it")
    if trace.step.shape != routed.shape[:1]:
        raise UserError(f"{name}: {trace.step.size} steps of {routed.shape[0]} rows; expected one for each row")
    if len(trace.layers) != routed.shape[1] or list(trace.layers) != sorted(set(trace.layers)):
        raise UserError(f"{name}: {len(trace.layers)} numbers of layers; expected {routed.shape[1]} ascending ones")
    if int(trace.step.min()) < 0 or int(trace.step.max()) > _LAST_STEP:
        raise UserError(f"{name}: steps {trace.step.min()} to {trace.step.max()}; expected 0 to 2**62")
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


def from_requests(requests: Sequence[npt.NDArray[Any]], experts: int, source: str) -> RoutingTrace:
    """Of requests' routed experts [tokens, layers, top_k] that run side by side: token i of each makes step i.

    Raises UserError where their layers or top_k differ, or experts are not 0 to 65535.
    """
    first = requests[0]
    for array in requests:
        if array.ndim != 3 or array.shape[1:] != first.shape[1:]:
            raise UserError(
                f"{source}: shapes {list(first.shape)} and {list(array.shape)}; "
                "expected [tokens, layers, top_k], equal but for tokens"
            )
        if array.size and (int(array.min()) < 0 or int(array.max()) > 0xFFFF):
            raise UserError(f"{source}: expert {int(array.min())} to {int(array.max())}; expected 0 to {experts - 1}")
    joined = np.concatenate([array.astype(np.uint16) for array in requests])
    step = np.concatenate([np.arange(array.shape[0], dtype=np.int64) for array in requests])
    order = np.argsort(step, kind="stable")
    return RoutingTrace(joined[order], step[order], experts, tuple(range(joined.shape[1])), "", source)
