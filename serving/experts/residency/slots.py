"""Who is in which slot, and when a slot may be written: never while a step under way may read it.

A slot goes FREE -> COPYING -> READY -> RETIRED -> COPYING and so on. READY slots are in the table that a step takes
with it when it begins. An evicted owner leaves the table at once, and its slot is RETIRED: it waits until every step
that began before has ended, and only then is the next owner's copy issued. The next owner enters the table when its
copy is complete.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .pool import Pool

FREE, COPYING, READY, RETIRED = 0, 1, 2, 3
NOBODY = -1

Cells = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Copy:
    """A command: write the bytes of `cell` into `slot`, then tell the cache with `copied` or `copy_failed`."""

    cell: int
    slot: int


@dataclass(frozen=True)
class Step:
    """A step under way, as `begin` returned it."""

    number: int
    epoch: int


class Slots:
    """Slots, their owners, and the steps under way. No rule of eviction is in here.

    Attributes:
        state: uint8 [slots], FREE, COPYING, READY or RETIRED.
        owner: int32 [slots], READY: whose bytes it holds; COPYING and RETIRED: who comes; else NOBODY.
        must: bool [slots], RETIRED: a step waits for who comes; it cannot be sent away for another.
        age: uint8 [slots], READY: ticks since its copy was complete, 127 at most.
        group: intp [slots], the quota that a slot belongs to.
        table: int32 [cells], the slot that holds a cell, or NOBODY. What a step reads.
        coming: int32 [cells], the slot that a cell is on the way to, or NOBODY.
    """

    def __init__(self, pool: Pool) -> None:
        self.state = np.zeros(pool.slots, np.uint8)
        self.owner = np.full(pool.slots, NOBODY, np.int32)
        self.must = np.zeros(pool.slots, np.bool_)
        self.age = np.zeros(pool.slots, np.uint8)
        self.group = np.repeat(np.arange(len(pool.quotas)), pool.quotas)
        self._bounds = [0, *np.cumsum(pool.quotas).tolist()]
        self.table = np.full(pool.cells, NOBODY, np.int32)
        self.coming = np.full(pool.cells, NOBODY, np.int32)
        self._epoch = 0
        self._retired_at = np.zeros(pool.slots, np.int64)
        self._running: dict[int, int] = {}
        self._number = 0

    def of_group(self, group: int, state: int) -> Cells:
        """The slots of a quota that are in a state."""
        begin, end = self._bounds[group : group + 2]
        slots: Cells = begin + np.flatnonzero(self.state[begin:end] == state)
        return slots

    def begin(self) -> Step:
        """A step begins, with the table as it is now."""
        self._number += 1
        self._running[self._number] = self._epoch
        return Step(self._number, self._epoch)

    def end(self, step: Step) -> None:
        """A step has ended: it reads no more. Raises ValueError where it is not under way."""
        if self._running.pop(step.number, None) is None:
            raise ValueError(f"step {step.number} is not under way")

    @property
    def running(self) -> int:
        """How many steps are under way."""
        return len(self._running)

    def retire(self, slots: Cells, cells: Cells, must: bool) -> None:
        """Owners of READY slots leave the table; `cells` come in their place once that is safe."""
        if not slots.size:
            return
        self._epoch += 1
        self.table[self.owner[slots]] = NOBODY
        self._retired_at[slots] = self._epoch
        self.state[slots] = RETIRED
        self.reserve(slots, cells, must)

    def reserve(self, slots: Cells, cells: Cells, must: bool) -> None:
        """`cells` come to slots that are FREE or RETIRED; who was to come there does not."""
        before = self.owner[slots]
        waited = (self.state[slots] == RETIRED) & (before >= 0)
        self.coming[before[waited]] = NOBODY
        free = slots[self.state[slots] == FREE]
        self.state[free] = RETIRED
        self.owner[slots] = cells
        self.must[slots] = must
        self.coming[cells] = slots

    def issue(self) -> tuple[Copy, ...]:
        """Copies that may begin now; each must be answered by `arrived` or `failed`."""
        slots = np.flatnonzero((self.state == RETIRED) & self._drained())
        self.state[slots] = COPYING
        self.must[slots] = False
        return tuple(Copy(int(self.owner[slot]), int(slot)) for slot in slots)

    def arrived(self, slots: Cells) -> None:
        """The copies into `slots` are complete. Raises ValueError where none is under way."""
        self._copying(slots)
        cells = self.owner[slots]
        self.state[slots] = READY
        self.age[slots] = 0
        self.coming[cells] = NOBODY
        self.table[cells] = slots

    def failed(self, slots: Cells) -> None:
        """The copies into `slots` ended early, and write no more. Raises ValueError where none is under way."""
        self._copying(slots)
        self.coming[self.owner[slots]] = NOBODY
        self.owner[slots] = NOBODY
        self.state[slots] = FREE

    def tick(self) -> None:
        """Owners age."""
        self.age += self.age < 127

    def clone(self) -> "Slots":
        """A copy that shares nothing but what never changes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in ("state", "owner", "must", "age", "table", "coming", "_retired_at"):
            setattr(other, name, getattr(self, name).copy())
        other._running = dict(self._running)
        return other

    def key(self) -> bytes:
        """What distinguishes this state from others in how it will go on, but for ages."""
        # Steps under way differ in nothing but how many of them a retired slot waits for.
        epochs = np.array(list(self._running.values()), np.int64)
        waits = (epochs[None, :] < self._retired_at[:, None]).sum(axis=1, dtype=np.uint8)
        waits[self.state != RETIRED] = 0
        parts = (self.state, self.owner, self.must, waits)
        return b"".join(part.tobytes() for part in parts) + bytes([len(epochs)])

    def _drained(self) -> npt.NDArray[np.bool_]:
        """Slots that no step under way can read."""
        oldest = min(self._running.values(), default=self._epoch)
        return self._retired_at <= oldest

    def _copying(self, slots: Cells) -> None:
        wrong = slots[self.state[slots] != COPYING]
        if wrong.size:
            raise ValueError(f"slot {int(wrong[0])}: no copy into it is under way")
