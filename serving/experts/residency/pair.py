"""Base slots and the delta slots that lean on them: a delta without its base would be half an expert."""

import numpy as np
import numpy.typing as npt

from .cache import SlotCache
from .pool import PoolError, needs_base
from .slots import Cells, Copy, Step


class Pair:
    """Two caches of the same cells. A cell that has a delta, or gets one, is pinned in the base.

    Attributes:
        base: the base slots. Whoever fetches into them does so through the cache itself.
        delta: the delta slots; promoted through this class only.
        floor: slots of each base quota that deltas must leave free to be evicted; see pool.Pool.floor.
    """

    def __init__(self, base: SlotCache, delta: SlotCache, floor: int) -> None:
        if (base.pool.layers, base.pool.experts) != (delta.pool.layers, delta.pool.experts):
            raise PoolError("base and delta slots: expected the same layers and experts")
        if not needs_base(delta.pool.kind):
            raise PoolError(f"slots of kind {delta.pool.kind.value} need no base; use a cache of their own")
        self.base, self.delta, self.floor = base, delta, floor
        self._leaning = np.zeros(base.pool.cells, np.bool_)

    def begin(self) -> tuple[Step, Step]:
        """A step begins, with both tables as they are now."""
        return self.base.begin(), self.delta.begin()

    def end(self, steps: tuple[Step, Step], cells: Cells, rows: npt.NDArray[np.int64]) -> tuple[tuple[Copy, ...], ...]:
        """A step has ended; returns copies that may begin now, of base and delta."""
        return self.base.end(steps[0], cells, rows), self.delta.end(steps[1], cells, rows)

    def promote(self) -> tuple[Copy, ...]:
        """A pass over the delta slots: only cells whose base is resident, so few that the base keeps its floor."""
        groups = range(len(self.base.pool.quotas))
        copies = self.delta.promote(np.concatenate([self._allowed(group) for group in groups]))
        self.lean()
        return copies

    def fetch_some(self, cells: Cells) -> tuple[Copy, ...]:
        """Deltas for those of `cells` that may have one and find a place; see SlotCache.fetch_some."""
        copies: list[Copy] = []
        width = self.base.pool.width
        for cell in cells.tolist():
            if self._allowed(cell // width)[cell % width]:
                copies += self.delta.fetch_some(np.array([cell]))
                self.lean()
        return tuple(copies)

    def lean(self) -> None:
        """Brings the base's pins to where the deltas are; called after each change of the deltas."""
        slots = self.delta.slots
        leaning = (slots.table >= 0) | (slots.coming >= 0)
        self.base.pin(np.flatnonzero(leaning & ~self._leaning))
        self.base.unpin(np.flatnonzero(self._leaning & ~leaning))
        self._leaning = leaning

    def clone(self) -> "Pair":
        """A copy that shares nothing but what never changes."""
        other = object.__new__(type(self))
        other.base, other.delta, other.floor = self.base.clone(), self.delta.clone(), self.floor
        other._leaning = self._leaning.copy()
        return other

    def _allowed(self, group: int) -> npt.NDArray[np.bool_]:
        """Which cells of a base quota may have a delta, bool [width]."""
        pool, heat = self.base.pool, self.delta.heat.heat
        of_group = slice(group * pool.width, (group + 1) * pool.width)
        allowed: npt.NDArray[np.bool_] = self.base.slots.table[of_group] >= 0
        if pool.quotas[group] == pool.width:
            return allowed
        pinned = self.base.pinned_of(group)
        room = pool.quotas[group] - self.floor - int(pinned.sum())
        # Who is pinned already takes nothing more; but where pins of others alone break the floor, nobody leans.
        if room < 0:
            return np.zeros(pool.width, np.bool_)
        others = np.flatnonzero(allowed & ~pinned)
        order = np.argsort(-heat[of_group][others], kind="stable")
        allowed[others[order[room:]]] = False
        return allowed
