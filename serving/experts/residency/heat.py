"""How hot every cell is: counts that halve, with every tick or sooner, and for how long nobody asked for it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .rules import HEAT_LIMIT, Rules

NEVER = 127
# 100 steps weigh about as much as the 500 of a tick of 5 s at 10 ms a step.
_RECENT_WEIGHT = 4


@dataclass
class Heat:
    """Counters of all cells, owned by one cache.

    Attributes:
        heat: int64 [cells], 0 to the rules' cap.
        seen: bool [cells], asked for since the last tick.
        cold: uint8 [cells], ticks since the cell was last asked for; NEVER at most.
        recent: int64 [cells], as heat, but halved by every `Rules.recent_steps` steps; 0 where these are None.
        counted: steps that were counted since the last of these halvings.
    """

    heat: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]
    cold: npt.NDArray[np.uint8]
    recent: npt.NDArray[np.int64]
    counted: int = 0

    @classmethod
    def empty(cls, cells: int) -> "Heat":
        """Of cells that nobody has asked for."""
        zeros = np.zeros((2, cells), np.int64)
        return cls(zeros[0], np.zeros(cells, np.bool_), np.full(cells, NEVER, np.uint8), zeros[1])

    def count(self, cells: npt.NDArray[np.intp], rows: npt.NDArray[np.int64], rules: Rules) -> None:
        """A step routed `rows` rows to each of `cells`, which are all different. Raises ValueError on rows below 1."""
        if rows.size and int(rows.min()) < 1:
            raise ValueError(f"{int(rows.min())} rows routed to a cell: expected at least 1")
        _add(self.heat, cells, rows, rules)
        if rules.recent_steps is not None:
            _add(self.recent, cells, rows, rules)
            self.counted += 1
            if self.counted >= rules.recent_steps:
                self.recent >>= 1
                self.counted = 0
        self.seen[cells] = True
        self.cold[cells] = 0

    def warmth(self, cells: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """int64, 0 to HEAT_LIMIT: the order in which fetches send cells away, the least first.

        Heat, and so much of the recent heat that both weigh about as much where nothing changes: one memory is long
        enough to know what is popular, the other short enough to see a topic change.
        """
        total: npt.NDArray[np.int64] = np.minimum(self.heat[cells] + _RECENT_WEIGHT * self.recent[cells], HEAT_LIMIT)
        return total

    def tick(self) -> None:
        """A window of time is over."""
        self.heat >>= 1
        unseen = ~self.seen
        self.cold[unseen] = np.minimum(self.cold[unseen], NEVER - 1) + 1
        self.seen[:] = False

    def clone(self) -> "Heat":
        """A copy that shares nothing."""
        return type(self)(self.heat.copy(), self.seen.copy(), self.cold.copy(), self.recent.copy(), self.counted)


def _add(heat: npt.NDArray[np.int64], cells: npt.NDArray[np.intp], rows: npt.NDArray[np.int64], rules: Rules) -> None:
    """Adds the heat of rows, up to the rules' cap."""
    left = rules.cap - heat[cells]
    heat[cells] += np.where(rows > left // rules.unit, left, rows * rules.unit)
