"""How hot every cell is: a count that halves with every tick, and for how long nobody asked for it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .rules import Rules

NEVER = 127


@dataclass
class Heat:
    """Counters of all cells, owned by one cache.

    Attributes:
        heat: int64 [cells], 0 to the rules' cap.
        seen: bool [cells], asked for since the last tick.
        cold: uint8 [cells], ticks since the cell was last asked for; NEVER at most.
    """

    heat: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]
    cold: npt.NDArray[np.uint8]

    @classmethod
    def empty(cls, cells: int) -> "Heat":
        """Of cells that nobody has asked for."""
        return cls(np.zeros(cells, np.int64), np.zeros(cells, np.bool_), np.full(cells, NEVER, np.uint8))

    def count(self, cells: npt.NDArray[np.intp], rows: npt.NDArray[np.int64], rules: Rules) -> None:
        """`rows` rows were routed to each of `cells`, which are all different. Raises ValueError on rows below 1."""
        if rows.size and int(rows.min()) < 1:
            raise ValueError(f"{int(rows.min())} rows routed to a cell: expected at least 1")
        room = (rules.cap - self.heat[cells]) // rules.unit
        self.heat[cells] += np.where(rows > room, rules.cap - self.heat[cells], rows * rules.unit)
        self.seen[cells] = True
        self.cold[cells] = 0

    def tick(self) -> None:
        """A window of time is over."""
        self.heat >>= 1
        unseen = ~self.seen
        self.cold[unseen] = np.minimum(self.cold[unseen], NEVER - 1) + 1
        self.seen[:] = False

    def clone(self) -> "Heat":
        """A copy that shares nothing."""
        return Heat(self.heat.copy(), self.seen.copy(), self.cold.copy())
