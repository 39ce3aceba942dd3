"""Runs one step to its end with a cache and an engine: the order in which the machines' commands are carried out."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from . import replay
from .cache import NoRoomError, SlotCache
from .misses import Misses
from .replay import Again, ByLayer, Finish, Replay, ReplayError
from .slots import NOBODY, Cells, Copy

Table = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Pass:
    """What a pass over all layers asked for.

    Attributes:
        cells: different cells, ascending.
        rows: int64, rows routed to each.
        zeros: pairs of a row and an expert that were not resident, and so gave zero.
    """

    cells: Cells
    rows: npt.NDArray[np.int64]
    zeros: int


class Engine(Protocol):
    """What can compute a step. A range of rows is start and end; the table is slots by cell (Slots.table)."""

    def whole(self, rows: tuple[int, int], table: Table) -> Pass:
        """Computes all layers; an expert that is not in the table gives zero."""

    def route(self, rows: tuple[int, int], layer: int) -> tuple[Cells, npt.NDArray[np.int64]]:
        """Runs up to the router of a layer, whose predecessors are computed; returns its cells and their rows."""

    def compute(self, rows: tuple[int, int], layer: int, table: Table) -> None:
        """Computes the experts of a layer that was routed."""

    def copy(self, copies: tuple[Copy, ...]) -> None:
        """Copies experts into slots, and returns when they are there; raises OSError where one cannot be read."""


def run(cache: SlotCache, engine: Engine, misses: Misses, rows: int, limit: int = replay.LIMIT) -> int:
    """Computes a step of `rows` rows; returns how many passes over the layers it took.

    The result in the engine is that of a forward with all experts resident. Raises ReplayError where the pool cannot
    hold what one row asks for, and what the engine raises; nothing is held and no step is under way then.
    """
    todo, taken = [(0, rows)], 0
    while todo:
        part = todo.pop()
        taken += (one := _Part(cache, engine, misses, part, limit)).run()
        if one.split:
            middle = (part[0] + part[1]) // 2
            todo += [(middle, part[1]), (part[0], middle)]
    return taken


class _Part:
    def __init__(self, cache: SlotCache, engine: Engine, misses: Misses, part: tuple[int, int], limit: int) -> None:
        self._cache, self._engine, self._misses, self._part = cache, engine, misses, part
        self._state = Replay(cache.pool.experts, cache.pool.layers, part[1] - part[0], limit)
        self._held = replay.NO_CELLS
        # What was resident when the part began; misses are counted against it.
        self._before = cache.slots.table.copy()
        self.split = False

    def run(self) -> int:
        taken = 0
        try:
            while True:
                step = self._cache.begin()
                found: Pass | None = None
                action: Again | ByLayer | Finish | None = None
                try:
                    found = self._engine.whole(self._part, self._cache.slots.table)
                    taken += 1
                    missed = self._cache.missing(found.cells)
                    self._misses.pass_missed(found.zeros)
                    self._state, action = replay.passed(self._state, found.cells, missed)
                finally:
                    done = isinstance(action, Finish) and found is not None
                    copies = self._cache.end(step, *((found.cells, found.rows) if found and done else ()))
                self._copy(copies)
                if isinstance(action, Finish):
                    self._account(found.cells, by_layer=False)
                    return taken
                if isinstance(action, Again) and self._bring(action.hold, action.must, action.some):
                    continue
                if isinstance(action, Again):
                    self._state, _ = replay.no_room(self._state)
                return taken + self._by_layer()
        finally:
            self._hold(replay.NO_CELLS)

    def _by_layer(self) -> int:
        self._hold(replay.NO_CELLS)
        cells, rows = [], []
        for layer in range(self._state.layers):
            of_layer, of_rows = self._engine.route(self._part, layer)
            self._state, need = replay.routed(self._state, of_layer, self._cache.missing(of_layer))
            if not self._bring(need.hold, need.must, replay.NO_CELLS):
                self._state, _ = replay.no_room(self._state)
                self._misses.split(self._state.replays)
                self.split = True
                return 1
            step = self._cache.begin()
            try:
                self._engine.compute(self._part, layer, self._cache.slots.table)
            finally:
                copies = self._cache.end(step)
            self._copy(copies)
            cells.append(of_layer)
            rows.append(of_rows)
        self._state, _ = replay.last_layer(self._state)
        step = self._cache.begin()
        self._copy(self._cache.end(step, np.concatenate(cells), np.concatenate(rows)))
        self._account(np.concatenate(cells), by_layer=True)
        return 1

    def _bring(self, hold: Cells, must: Cells, some: Cells) -> bool:
        """Holds and fetches; False where it does not fit."""
        self._hold(hold)
        try:
            self._copy(self._cache.fetch(must))
        except NoRoomError:
            return False
        self._copy(self._cache.fetch_some(some))
        absent = self._cache.missing(must)
        if absent.size:
            raise ReplayError(f"cell {int(absent[0])} waits for a step that runs beside this one, or for its copy")
        return True

    def _hold(self, cells: Cells) -> None:
        self._cache.pin(cells)
        self._cache.unpin(self._held)
        self._held = cells

    def _copy(self, copies: tuple[Copy, ...]) -> None:
        if not copies:
            return
        slots = np.array([copy.slot for copy in copies], np.intp)
        try:
            self._engine.copy(copies)
        except BaseException:
            self._cache.copy_failed(slots)
            raise
        self._cache.copied(slots)

    def _account(self, cells: Cells, by_layer: bool) -> None:
        missed = cells[self._before[cells] == NOBODY]
        self._misses.step(cells, missed, self._state.replays, by_layer)
