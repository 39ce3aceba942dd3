"""The policies that ours is held against. Each gives every cell a priority; who has the least makes way.

`lru`: when it was last asked for. `lfu`: how many rows were routed to it, ever. `lfu-aged`: the same, halved by each
tick. `belady`: how soon it will be asked for again, which only a recorded trace can tell.
"""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from .requests import Requests, Rows
from .slots import Cells

UNIT = 1024
# Priorities share 64-bit keys with groups and cells (demand.py).
PRIORITY_LIMIT = (1 << 39) - 1


class Policy(ABC):
    """Priorities of all cells.

    Attributes:
        priority: int64 [cells], 0 to PRIORITY_LIMIT.
    """

    def __init__(self, cells: int) -> None:
        self.priority = np.zeros(cells, np.int64)

    @abstractmethod
    def asked(self, number: int, cells: Cells, rows: Rows) -> None:
        """Set `number` asks for `cells`, with `rows` rows each."""

    def tick(self) -> None:  # noqa: B027
        """A window of time is over; most policies do not mind."""


class Lru(Policy):
    """Least recently used goes."""

    def asked(self, number: int, cells: Cells, rows: Rows) -> None:  # noqa: ARG002
        """Their priority is the set's number."""
        self.priority[cells] = number + 1


class Lfu(Policy):
    """Least frequently used goes; counts outlive evictions."""

    def asked(self, number: int, cells: Cells, rows: Rows) -> None:  # noqa: ARG002
        """Their priority grows by the rows."""
        self.priority[cells] = np.minimum(self.priority[cells] + rows * UNIT, PRIORITY_LIMIT)


class LfuAged(Lfu):
    """The same with counts that halve by each tick."""

    def tick(self) -> None:
        """Priorities halve."""
        self.priority >>= 1


class Belady(Policy):
    """Who is asked for last goes.

    All copies cost the same and every set must be resident as a whole: no order of evictions misses less (README).
    """

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests.layers * requests.experts)
        self._soonness = requests.sets - next_sets(requests)
        self._begins = requests.begins

    def asked(self, number: int, cells: Cells, rows: Rows) -> None:  # noqa: ARG002
        """Their priority is the more, the sooner each comes again."""
        self.priority[cells] = self._soonness[self._begins[number] : self._begins[number + 1]]


def next_sets(requests: Requests) -> npt.NDArray[np.int64]:
    """For each entry of `requests.cells` the next set that has the same cell; the number of sets if none has."""
    owner = np.repeat(np.arange(requests.sets), np.diff(requests.begins))
    order = np.argsort(requests.cells, kind="stable")
    same = requests.cells[order[1:]] == requests.cells[order[:-1]]
    following = np.full(owner.size, requests.sets, np.int64)
    following[order[:-1][same]] = owner[order[1:][same]]
    return following


def policy(name: str, requests: Requests) -> Policy:
    """A fresh policy by its name. Raises KeyError."""
    if name == "belady":
        return Belady(requests)
    known: dict[str, type[Lru | Lfu]] = {"lru": Lru, "lfu": Lfu, "lfu-aged": LfuAged}
    return known[name](requests.layers * requests.experts)
