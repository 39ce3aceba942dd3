"""Replay of a step that missed experts: what to fetch, how often to run it again, and why that ends.

A miss gives zero and is counted, so the step runs to its end, but what it computed behind the first layer with a miss
is not what it will be, nor are the experts that later layers asked for. Up to and with that layer, routing is certain.
These experts are held, the missing ones fetched, and the step runs again: now the first miss, if any, is in a later
layer. The pass without a miss is the forward that has all experts resident, bit for bit.

After `limit` replays the step is computed layer by layer, each layer's experts fetched between its router and its
experts; that is one pass and always enough. If even that does not fit (a pool forced below its floor), rows are split.
"""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from .slots import Cells

LIMIT = 3


class Phase(Enum):
    """What a step is doing."""

    WHOLE = "whole"
    BY_LAYER = "by layer"
    SPLIT = "split"
    DONE = "done"


class ReplayError(Exception):
    """The driver did not do what the machine asked for."""


@dataclass(frozen=True)
class Replay:
    """State of one step.

    Attributes:
        experts: routed experts of a layer.
        layers: MoE layers.
        rows: rows of the step.
        limit: replays of the whole step.
        phase: what it is doing.
        replays: how often it was run again.
        layer: first layer whose experts are not known to be resident yet.
    """

    experts: int
    layers: int
    rows: int
    limit: int = LIMIT
    phase: Phase = Phase.WHOLE
    replays: int = 0
    layer: int = 0


@dataclass(frozen=True)
class Again:
    """Hold `hold`, fetch all of `must` and what fits of `some`, then run the whole step again."""

    must: Cells
    some: Cells
    hold: Cells


@dataclass(frozen=True)
class ByLayer:
    """Release what is held, then run layer by layer, reporting each layer's routing with `routed`."""


@dataclass(frozen=True)
class Need:
    """Hold `hold` and fetch all of `must`, compute this layer, release them, and go on to the next."""

    must: Cells
    hold: Cells


@dataclass(frozen=True)
class Split:
    """Release what is held; run the step as two with about half the rows each."""


@dataclass(frozen=True)
class Finish:
    """Release what is held; the step's result is that of a resident forward."""


def passed(state: Replay, used: Cells, missed: Cells) -> tuple[Replay, Again | ByLayer | Finish]:
    """The whole step has run: it asked for the cells `used` (all different), and missed those in `missed`.

    Raises ReplayError where it misses again what was to be held, or in another phase.
    """
    _in(state, Phase.WHOLE)
    if missed.size == 0:
        return replace(state, phase=Phase.DONE, layer=state.layers), Finish()
    first = int(missed.min()) // state.experts
    if first < state.layer:
        raise ReplayError(f"layer {first} misses experts again that were fetched and held")
    if state.replays >= state.limit:
        return replace(state, phase=Phase.BY_LAYER, layer=0), ByLayer()
    certain = (first + 1) * state.experts
    again = Again(missed[missed < certain], missed[missed >= certain], used[used < certain])
    return replace(state, replays=state.replays + 1, layer=first + 1), again


def routed(state: Replay, used: Cells, missing: Cells) -> tuple[Replay, Need]:
    """The next layer's router has run: it asks for `used`, of which `missing` are not resident.

    Raises ReplayError where these are cells of another layer, or in another phase.
    """
    _in(state, Phase.BY_LAYER)
    if (
        used.size == 0
        or int(used.min()) // state.experts != state.layer
        or int(used.max()) // state.experts != state.layer
    ):
        raise ReplayError(f"expected the experts of layer {state.layer}")
    return replace(state, layer=state.layer + 1), Need(missing, used)


def last_layer(state: Replay) -> tuple[Replay, Finish]:
    """The last layer is computed. Raises ReplayError where it is not."""
    _in(state, Phase.BY_LAYER)
    if state.layer != state.layers:
        raise ReplayError(f"layer {state.layer} of {state.layers} is still to be computed")
    return replace(state, phase=Phase.DONE), Finish()


def no_room(state: Replay) -> tuple[Replay, ByLayer | Split]:
    """What the last action asked for does not fit, and nothing under way will change that.

    Raises ReplayError where one row of one layer does not fit: `pool.admit` refuses such pools.
    """
    if state.phase is Phase.WHOLE:
        # The replay that it was to be for does not take place.
        return replace(state, phase=Phase.BY_LAYER, layer=0, replays=state.replays - 1), ByLayer()
    _in(state, Phase.BY_LAYER)
    if state.rows == 1:
        raise ReplayError("one row's experts of one layer do not fit")
    return replace(state, phase=Phase.SPLIT), Split()


def passes(state: Replay) -> int:
    """The most passes over the layers that a step takes until it is done or split."""
    return min(state.limit + 1, state.layers) + 1


def _in(state: Replay, phase: Phase) -> None:
    if state.phase is not phase:
        raise ReplayError(f"the step is {state.phase.value}, expected {phase.value}")


NO_CELLS: Cells = np.zeros(0, np.intp)
