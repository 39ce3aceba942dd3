"""The slot cache: which cells are resident, as a state machine without clock, threads or IO.

What happens comes in as calls (events); what is to be done goes out as Copy commands. Whoever drives it uploads the
table before a step, copies, and says when a window of time is over (`tick`) and when a pass may run (`promote`).
"""

import numpy as np
import numpy.typing as npt

from .heat import Heat
from .pool import Pool, PoolError
from .rules import Rules
from .slots import COPYING, FREE, READY, RETIRED, Cells, Copy, Slots, Step

_NO_ROWS = np.zeros(0, np.int64)
_SLOT_BITS, _HEAT_BITS, _CLASS_BITS = 17, 36, 3
_GROUP_SHIFT = np.uint64(_SLOT_BITS + _HEAT_BITS + _CLASS_BITS)


class NoRoomError(PoolError):
    """Cells that a step must have do not fit beside what is held; nothing was changed.

    Attributes:
        later: copies that are under way, or wait for a step to end, may make room when they are complete.
    """

    def __init__(self, message: str, later: bool) -> None:
        super().__init__(message)
        self.later = later


class SlotCache:
    """The slots of one pool and the heat of all its cells.

    Cells are given as intp arrays of different cells. Every event leaves a whole state, or raises and changes nothing.
    """

    def __init__(self, pool: Pool, rules: Rules) -> None:
        self.pool, self.rules = pool, rules
        self.heat = Heat.empty(pool.cells)
        self.slots = Slots(pool)
        # How often each cell is pinned or held by a replay.
        self._pins = np.zeros(pool.cells, np.int32)
        self.promoted = 0
        self.fetched = 0
        self.evicted = 0

    # A step.

    def begin(self) -> Step:
        """A step begins; it reads the table as it is now."""
        return self.slots.begin()

    def end(self, step: Step, cells: Cells | None = None, rows: npt.NDArray[np.int64] = _NO_ROWS) -> tuple[Copy, ...]:
        """A step has ended, and `rows` rows were routed to each of `cells`.

        `cells` is None for a step that is to be replayed: its routing is not what it will be. Returns copies that had
        to wait for it. Raises ValueError on a step that is not under way, and on a negative number of rows.
        """
        if cells is not None and cells.size and int(rows.min()) < 1:
            raise ValueError(f"{int(rows.min())} rows routed to a cell: expected at least 1")
        self.slots.end(step)
        if cells is not None:
            self.heat.count(cells, rows, self.rules)
        return self.slots.issue()

    def missing(self, cells: Cells) -> Cells:
        """Those of `cells` that a step that begins now would miss."""
        return cells[self.slots.table[cells] < 0]

    # Time.

    def tick(self) -> None:
        """A window of time is over: heat halves, who was not seen is a tick colder, owners are a tick older."""
        self.heat.tick()
        self.slots.tick()

    # Copies.

    def copied(self, slots: Cells) -> None:
        """Copies are complete; the next step that begins reads them. Raises ValueError where none is under way."""
        self.slots.arrived(slots)

    def copy_failed(self, slots: Cells) -> None:
        """Copies ended without success. Raises ValueError where none is under way."""
        self.slots.failed(slots)

    # Pins.

    def pin(self, cells: Cells) -> None:
        """Cells are not evicted until they are unpinned as often; pinning brings nobody in."""
        self._pins[cells] += 1

    def unpin(self, cells: Cells) -> None:
        """Undoes one `pin`. Raises ValueError where a cell is not pinned, and changes nothing then."""
        wrong = cells[self._pins[cells] == 0]
        if wrong.size:
            raise ValueError(f"cell {int(wrong[0])} is not pinned")
        self._pins[cells] -= 1

    def pinned(self) -> Cells:
        """Cells that are pinned."""
        return np.flatnonzero(self._pins)

    def pinned_of(self, group: int) -> npt.NDArray[np.bool_]:
        """Which cells of a quota are pinned, bool [pool.width]."""
        return self._pins[group * self.pool.width : (group + 1) * self.pool.width] > 0

    # Promotion: nobody waits for it.

    def promote(self, allowed: npt.NDArray[np.bool_] | None = None) -> tuple[Copy, ...]:
        """A pass: the hottest cells that are not resident get slots, hottest first, as far as the rules allow.

        A candidate was asked for in this window or the one before it; `allowed` (bool [cells]) can bar some. Returns
        copies that may begin.
        """
        heat, slots = self.heat, self.slots
        open_to = (slots.table < 0) & (slots.coming < 0) & (heat.heat > 0) & (heat.cold == 0)
        if allowed is not None:
            open_to &= allowed
        candidates = np.flatnonzero(open_to)
        candidates = candidates[np.argsort(-heat.heat[candidates], kind="stable")]
        budget = self.rules.promotions
        swaps: dict[int, int] = {}
        closed: set[int] = set()
        for cell in candidates.tolist():
            if budget == 0 or len(closed) == len(self.pool.quotas):
                break
            group = cell // self.pool.width
            if group in closed:
                continue
            if (slot := self._place(cell, group, swaps)) is None:
                # Candidates that follow are colder: what is closed to this one is closed to them.
                closed.add(group)
                continue
            one, into = np.array([cell]), np.array([slot])
            if slots.state[slot] == READY:
                swaps[group] = swaps.get(group, 0) + 1
                self.evicted += 1
                slots.retire(into, one, must=False)
            else:
                slots.reserve(into, one, must=False)
            self.promoted += 1
            budget -= 1
        return slots.issue()

    # Fetches: a step waits for them.

    def fetch(self, cells: Cells) -> tuple[Copy, ...]:
        """Brings in all of `cells`, whoever else must go for them: the coldest (Heat.warmth) that nobody pins.

        Cells on their way already are waited for. Returns copies that may begin; others follow from `end`. Raises
        NoRoomError where not all of them fit, and changes nothing then.
        """
        slots = self.slots
        wanted = np.sort(cells[slots.table[cells] < 0])
        on_way = wanted[slots.coming[wanted] >= 0]
        wanted = wanted[slots.coming[wanted] < 0]
        if wanted.size:
            groups = wanted // self.pool.width
            needs = np.bincount(groups, minlength=len(self.pool.quotas))
            into = self._victims(needs, np.maximum(slots.table[cells], slots.coming[cells]))
            ready = slots.state[into] == READY
            self.evicted += int(ready.sum())
            slots.retire(into[ready], wanted[ready], must=True)
            slots.reserve(into[~ready], wanted[~ready], must=True)
            self.fetched += int(wanted.size)
        waiting = slots.coming[on_way]
        slots.must[waiting[slots.state[waiting] == RETIRED]] = True
        return slots.issue()

    def fetch_some(self, cells: Cells) -> tuple[Copy, ...]:
        """Brings in those of `cells` that find a place, the first ones first.

        Such a cell takes a free slot, or that of the coldest owner (Heat.warmth) who is unpinned, and was not seen in
        this window or is colder than the cell. Returns copies that may begin.
        """
        slots = self.slots
        for cell in cells.tolist():
            if slots.table[cell] >= 0 or slots.coming[cell] >= 0:
                continue
            group = cell // self.pool.width
            one = np.array([cell])
            if (free := self._free(group)).size:
                slots.reserve(free[:1], one, must=False)
            else:
                ready = self._evictable(group)
                owners = slots.owner[ready]
                warmth = self.heat.warmth(owners)
                ready, warmth = (
                    of[~self.heat.seen[owners] | (warmth < self.heat.warmth(one))] for of in (ready, warmth)
                )
                if not ready.size:
                    continue
                at = int(np.argmin(warmth))
                slots.retire(ready[at : at + 1], one, must=False)
                self.evicted += 1
            self.fetched += 1
        return slots.issue()

    # For whoever looks at every state.

    def clone(self) -> "SlotCache":
        """A copy that shares nothing but what never changes."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.heat, other.slots, other._pins = self.heat.clone(), self.slots.clone(), self._pins.copy()
        return other

    def key(self) -> bytes:
        """What distinguishes this state from others in how it will go on."""
        cold = np.minimum(self.heat.cold, self.rules.cold_ticks or 1)
        age = np.minimum(self.slots.age, 0 if self.rules.margin is None else self.rules.stay_ticks)
        parts = (self.heat.heat, self.heat.seen, cold, self.heat.recent, self._pins, age)
        return b"".join(part.tobytes() for part in parts) + bytes([self.heat.counted % 256]) + self.slots.key()

    # Who makes way. Tests replace these to see that each rule is needed.

    def _free(self, group: int) -> Cells:
        return self.slots.of_group(group, FREE)

    def _evictable(self, group: int) -> Cells:
        """Slots of a quota whose owner may be evicted at all: complete, and not pinned."""
        slots = self.slots.of_group(group, READY)
        free: npt.NDArray[np.bool_] = self._pins[self.slots.owner[slots]] == 0
        return slots[free]

    def _cold(self, slots: Cells) -> Cells:
        """Those of READY slots whose owner is unseen in this window, and cold."""
        if self.rules.cold_ticks is None:
            return slots[:0]
        owners = self.slots.owner[slots]
        return slots[~self.heat.seen[owners] & (self.heat.cold[owners] >= self.rules.cold_ticks)]

    def _stayed(self, slots: Cells) -> Cells:
        """Those of READY slots whose owner has stayed long enough to be weighed against others."""
        return slots[self.slots.age[slots] >= self.rules.stay_ticks]

    def _coldest(self, slots: Cells) -> Cells:
        """The one of READY slots whose owner is the coldest; of several the first."""
        at = int(np.argmin(self.heat.heat[self.slots.owner[slots]]))
        return slots[at : at + 1]

    def _place(self, cell: int, group: int, swaps: dict[int, int]) -> int | None:
        """The slot that a candidate of a pass gets, or None."""
        free = self._free(group)
        if free.size:
            return int(free[0])
        if self.rules.swaps is not None and swaps.get(group, 0) >= self.rules.swaps:
            return None
        ready = self._evictable(group)
        heat = self.heat.heat
        cold = self._cold(ready)
        if cold.size:
            (slot,) = self._coldest(cold)
            if heat[self.slots.owner[slot]] < heat[cell]:
                return int(slot)
        margin = self.rules.margin
        stayed = self._stayed(ready)
        if margin is None or not stayed.size:
            return None
        (slot,) = self._coldest(stayed)
        of_owner, of_cell = int(heat[self.slots.owner[slot]]), int(heat[cell])
        return int(slot) if of_cell * margin.denominator > of_owner * margin.numerator else None

    def _victims(self, needs: npt.NDArray[np.intp], kept: npt.NDArray[np.int32]) -> Cells:
        """`needs[group]` slots of each quota, in the quotas' order, and none of `kept` (NOBODY among them is none).

        Free ones first, then those where somebody was to come that nobody waits for, then owners: those that the
        rules call cold, the rest; in each class the one with the least warmth, of several the first slot.
        """
        slots, heat, rules = self.slots, self.heat, self.rules
        busy = needs[slots.group] > 0
        busy[kept[kept >= 0]] = False
        ready = busy & (slots.state == READY)
        usable = np.flatnonzero(busy & ((slots.state == FREE) | ((slots.state == RETIRED) & ~slots.must)))
        owned = np.flatnonzero(ready)
        owned = owned[self._pins[slots.owner[owned]] == 0]
        owners = slots.owner[owned]
        seen = heat.seen[owners]
        is_cold = ~seen if rules.cold_ticks is None else ~seen & (heat.cold[owners] >= rules.cold_ticks)
        classes = np.where(is_cold, 2, 3).astype(np.uint64)
        keys = np.concatenate(
            [
                self._keys(usable, (slots.state[usable] == RETIRED).astype(np.uint64), _NO_HEAT[:1]),
                self._keys(owned, classes, heat.warmth(owners)),
            ]
        )
        keys.sort()
        groups = np.flatnonzero(needs)
        starts = np.searchsorted(keys, groups.astype(np.uint64) << _GROUP_SHIFT)
        ends = np.append(starts[1:], keys.size)
        short = np.flatnonzero(ends - starts < needs[groups])
        if short.size:
            group, found = int(groups[short[0]]), int((ends - starts)[short[0]])
            raise self._no_room(group, int(needs[group]), found, busy)
        counts = needs[groups]
        places = np.arange(int(counts.sum())) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        return (keys[places] & np.uint64((1 << _SLOT_BITS) - 1)).astype(np.intp)

    def _keys(
        self, slots: Cells, classes: npt.NDArray[np.uint64], heat: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
        """The order of victims as numbers: group, class, heat, slot."""
        key = (self.slots.group[slots].astype(np.uint64) << np.uint64(_CLASS_BITS)) | classes
        key = (key << np.uint64(_HEAT_BITS)) | heat.astype(np.uint64)
        return (key << np.uint64(_SLOT_BITS)) | slots.astype(np.uint64)

    def _no_room(self, group: int, need: int, found: int, usable: npt.NDArray[np.bool_]) -> NoRoomError:
        slots = self.slots
        on_way = (slots.state == COPYING) | ((slots.state == RETIRED) & slots.must)
        on_way = np.flatnonzero(on_way & usable & (slots.group == group))
        later = bool((self._pins[slots.owner[on_way]] == 0).any())
        name = self.pool.group_name(group)
        return NoRoomError(
            f"{name}: {need} experts must come in, {found} slots of {self.pool.quotas[group]} can", later
        )


_NO_HEAT = np.zeros(1, np.int64)
