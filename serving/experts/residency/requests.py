"""A trace as a cache sees it: sets of cells that must be resident together, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .pool import Pool, PoolError
from .slots import Cells
from .trace import RoutingTrace

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Requests:
    """Sets of different cells, ascending in each.

    Attributes:
        begins: intp [sets + 1], where each set begins in `cells`.
        cells: intp, the cells of all sets.
        rows: int64, rows routed to each of them.
        step: int64 [sets], which step each set is of, 0 to steps - 1, not descending. A step has several sets where it
            must be computed in parts.
        steps: steps.
        layers: MoE layers.
        experts: routed experts of a layer.
    """

    begins: Cells
    cells: Cells
    rows: Rows
    step: Rows
    steps: int
    layers: int
    experts: int

    @property
    def sets(self) -> int:
        """How many sets."""
        return self.begins.size - 1

    def each(self) -> Iterator[tuple[int, Cells, Rows]]:
        """Step, cells and rows of every set."""
        bounds = self.begins.tolist()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            yield int(self.step[number]), self.cells[begin:end], self.rows[begin:end]


def from_trace(trace: RoutingTrace) -> Requests:
    """One set for each step."""
    _, number = np.unique(trace.step, return_inverse=True)
    return _merged(trace, np.arange(trace.step.size), number.astype(np.int64), number.astype(np.int64), False)


def fitted(trace: RoutingTrace, pool: Pool) -> Requests:
    """Sets that the pool can hold: a step that does not fit is computed layer by layer, or by halves of its rows.

    That is what replay.py comes to. Raises PoolError where one row of one layer does not fit.
    """
    whole = from_trace(trace)
    over = _over(whole, pool)
    if not over.size:
        return whole
    _, number = np.unique(trace.step, return_inverse=True)
    if not pool.shared:
        part = _halved(trace, number, over, pool)
        return _merged(trace, np.arange(number.size), part, number.astype(np.int64), False)
    # Layers that share a quota are taken one at a time, and a layer that does not fit alone by halves of its rows.
    by_layer = np.isin(number, over)
    one = Pool(
        pool.kind, pool.layers, pool.experts, (min(pool.quotas[0], pool.experts),) * pool.layers, pool.bytes_a_slot
    )
    layered = _over(whole, one)
    part = _halved(trace, number, np.intersect1d(layered, over), one)
    return _merged(trace, np.arange(number.size), part, number.astype(np.int64), True, by_layer)


def _over(requests: Requests, pool: Pool) -> Rows:
    """Sets that are more than a quota."""
    owner = np.repeat(np.arange(requests.sets), np.diff(requests.begins))
    groups = len(pool.quotas)
    need = np.bincount(owner * groups + requests.cells // pool.width, minlength=requests.sets * groups)
    too_many = need.reshape(requests.sets, groups) > np.array(pool.quotas)
    return np.flatnonzero(too_many.any(axis=1)).astype(np.int64)


def _halved(trace: RoutingTrace, number: Cells, over: Rows, pool: Pool) -> Rows:
    """The number of each row's set, ascending, after steps in `over` were halved until all sets fit."""
    cut = np.zeros(number.size, np.bool_)
    cut[1:] = number[1:] != number[:-1]
    begins = np.searchsorted(number, over, side="left").tolist()
    ends = np.searchsorted(number, over, side="right").tolist()
    todo = list(zip(begins, ends, strict=True))
    layer = np.arange(pool.layers)[None, :, None]
    while todo:
        begin, end = todo.pop()
        used = np.unique(trace.routed[begin:end].astype(np.intp) + layer * pool.experts)
        need = np.bincount(used // pool.width, minlength=len(pool.quotas))
        if (need <= np.array(pool.quotas)).all():
            continue
        if end - begin == 1:
            raise PoolError(
                f"a quota of {min(pool.quotas)}: one row asks for {int(need.max())}; nothing smaller can work"
            )
        middle = (begin + end) // 2
        cut[middle] = True
        todo += [(begin, middle), (middle, end)]
    return np.cumsum(cut).astype(np.int64)


def _merged(
    trace: RoutingTrace,
    rows: Cells,
    part: Rows,
    step: Rows,
    may_layer: bool,
    by_layer: npt.NDArray[np.bool_] | None = None,
) -> Requests:
    """Sets of rows with the same `part`; where `by_layer` (of rows) is True, one for each layer of them."""
    layers, cells = trace.routed.shape[1], trace.routed.shape[1] * trace.experts
    base = part * layers
    group = np.broadcast_to(base[:, None], (rows.size, layers)).copy()
    if may_layer and by_layer is not None:
        group[by_layer] += np.arange(layers)
    at = group[:, :, None] * cells + np.arange(layers)[None, :, None] * trace.experts + trace.routed.astype(np.int64)
    keys, counts = np.unique(at.reshape(-1), return_counts=True)
    owner = keys // cells
    sets, begins = np.unique(owner, return_index=True)
    first_row = np.searchsorted(part, sets // layers)
    return Requests(
        np.append(begins, keys.size).astype(np.intp),
        (keys % cells).astype(np.intp),
        counts.astype(np.int64),
        step[first_row],
        int(step[-1]) + 1,
        layers,
        trace.experts,
    )
