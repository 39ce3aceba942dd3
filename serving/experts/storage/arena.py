"""Back end "arena": the records used last in RAM slots, the others below it on disk."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.experts.storage import buffers, heat
from serving.experts.storage.backend import Backend
from serving.experts.storage.header import Key

_BATCH = 16
# Each start halves what earlier servers saw.
_FADE = 0.5


@dataclass
class Stats:
    """Counters since the arena was made.

    Attributes:
        hits: reads and leases that found their record in a slot.
        misses: those that did not.
        evictions: records that made room.
        passed_by: misses that found every slot in use and read past the arena.
        scanned: records that scans and preheating loaded.
    """

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    passed_by: int = 0
    scanned: int = 0


class _Slot:
    def __init__(self, index: int) -> None:
        self.index = index
        self.users = 0
        self.ready = False


class Arena(Backend):
    """An LRU of `slots` records over another back end, which it closes with itself.

    A read or lease of an absent record takes a free slot, else that of the record whose last use is longest ago and
    that nobody holds. `scan` takes free slots only. What was used how often is kept in the heat file, if one is named.
    """

    name = "arena"

    def __init__(self, below: Backend, slots: int, heat_file: Path | None = None) -> None:
        super().__init__(below.container, "never")
        self.below, self.slots = below, slots
        self.note = below.note
        self._step = self.container.header.read_bytes
        self._memory = buffers.aligned(slots * self._step)
        self._slots: OrderedDict[Key, _Slot] = OrderedDict()
        self._free = list(range(slots - 1, -1, -1))
        self._stats = Stats()
        self._changed = threading.Condition()
        self._open = True
        self._heat_file, self._heat = heat_file, dict[Key, float]()
        if heat_file is not None:
            found, why = heat.load(heat_file, self.container.header)
            self.note = "; ".join(part for part in (self.note, why) if part)
            self._heat = {key: count * _FADE for key, count in found.items() if key in self.container}
            self.scan(sorted(self._heat, key=lambda key: (-self._heat[key], key)))

    @contextmanager
    def lease(self, key: Key) -> Iterator[memoryview]:
        """See Backend. A record that is held is not evicted."""
        self.container.checksum(*key)
        self.require_open(self._open)
        with self._changed:
            self._find(key)
        with self._leased(key) as view:
            yield view

    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """See Backend. Misses are read together."""
        size = self.container.header.slot_bytes
        views = self.buffers(keys, into, size)
        for key in keys:
            self.container.checksum(*key)
        self.require_open(self._open)
        for first in range(0, len(keys), _BATCH):
            self._read(keys[first : first + _BATCH], views[first : first + _BATCH])

    def scan(self, keys: Sequence[Key]) -> int:
        """Loads records into free slots, in this order, and evicts none; returns how many were loaded."""
        self.require_open(self._open)
        loaded = 0
        rest = list(dict.fromkeys(keys))
        while rest:
            some, rest = rest[:_BATCH], rest[_BATCH:]
            with self._changed:
                taken = [(key, self._take_free(key)) for key in some if key not in self._slots and self._free]
            if not taken and not self._free:
                break
            self._load(taken)
            with self._changed:
                # A scan is no use: what it brought goes first.
                for key, slot in taken:
                    slot.users -= 1
                    self._slots.move_to_end(key, last=False)
            loaded += len(taken)
        with self._changed:
            self._stats.scanned += loaded
        return loaded

    def resident(self) -> list[Key]:
        """The records in slots, the one that would be evicted first at the front."""
        with self._changed:
            return [key for key, slot in self._slots.items() if slot.ready]

    def stats(self) -> Stats:
        """Counters since the arena was made."""
        with self._changed:
            return Stats(**vars(self._stats))

    def save_heat(self) -> None:
        """Writes the heat file, if one was named. Raises StorageError."""
        if self._heat_file is not None:
            with self._changed:
                now = dict(self._heat)
            heat.save(self._heat_file, self.container.header, now)

    def close(self) -> None:
        """See Backend. The heat file is written by `save_heat` alone."""
        self._open = False
        self.below.close()
        with self._changed:
            self._slots.clear()
            self._free.clear()
        self._memory.release()

    @contextmanager
    def _leased(self, key: Key) -> Iterator[memoryview]:
        slot = self._hold(key)
        if slot is None:
            with self.below.lease(key) as view:
                yield view
            return
        try:
            yield self._view(slot).toreadonly()
        finally:
            self._give_back([slot])

    def _view(self, slot: _Slot) -> memoryview:
        at = slot.index * self._step
        return self._memory[at : at + self.container.header.slot_bytes]

    def _whole(self, slot: _Slot) -> memoryview:
        at = slot.index * self._step
        return self._memory[at : at + self._step]

    def _hold(self, key: Key) -> _Slot | None:
        """A slot with the record, held; None where all are in use."""
        while True:
            with self._changed:
                slot = self._slots.get(key)
                if slot is None:
                    slot = self._take(key)
                    if slot is None:
                        return None
                    taken = slot
                elif self._wait(key, slot):
                    return slot
                else:
                    continue
            self._load([(key, taken)])
            return taken

    def _read(self, keys: Sequence[Key], views: Sequence[memoryview]) -> None:
        size = self.container.header.slot_bytes
        held: list[tuple[_Slot, memoryview]] = []
        taken: list[tuple[Key, _Slot]] = []
        waiting: list[tuple[Key, memoryview]] = []
        past: list[tuple[Key, memoryview]] = []
        with self._changed:
            for key, view in zip(keys, views, strict=True):
                slot = self._find(key)
                if slot is not None and slot.ready:
                    slot.users += 1
                    held.append((slot, view))
                elif slot is not None:
                    waiting.append((key, view))
                elif (slot := self._take(key)) is not None:
                    taken.append((key, slot))
                    held.append((slot, view))
                else:
                    past.append((key, view))
        try:
            self._load(taken)
        except BaseException:
            self._give_back([slot for slot, _ in held if slot.ready])
            raise
        for slot, view in held:
            view[:size] = self._view(slot)
        self._give_back([slot for slot, _ in held])
        for key, view in past:
            with self.below.lease(key) as found:
                view[:size] = found
        # Others, or an earlier one of these, are reading them.
        for key, view in waiting:
            with self._leased(key) as found:
                view[:size] = found

    def _find(self, key: Key) -> _Slot | None:
        """The record's slot, if it has one; counts the use."""
        self._heat[key] = self._heat.get(key, 0.0) + 1.0
        slot = self._slots.get(key)
        if slot is None:
            self._stats.misses += 1
        else:
            self._stats.hits += 1
            self._slots.move_to_end(key)
        return slot

    def _wait(self, key: Key, slot: _Slot) -> bool:
        """Holds a slot once its record is in it; False where it could not be read by whoever tried."""
        slot.users += 1
        while not slot.ready and self._slots.get(key) is slot:
            self._changed.wait()
        if slot.ready:
            return True
        slot.users -= 1
        return False

    def _take_free(self, key: Key) -> _Slot:
        slot = _Slot(self._free.pop())
        slot.users = 1
        self._slots[key] = slot
        return slot

    def _take(self, key: Key) -> _Slot | None:
        if not self._free:
            old = next((old for old, slot in self._slots.items() if slot.users == 0 and slot.ready), None)
            if old is None:
                self._stats.passed_by += 1
                return None
            self._free.append(self._slots.pop(old).index)
            self._stats.evictions += 1
        return self._take_free(key)

    def _load(self, taken: Sequence[tuple[Key, _Slot]]) -> None:
        """Reads records into slots that were taken for them; on failure the slots are free again."""
        if not taken:
            return
        try:
            self.below.read([key for key, _ in taken], [self._whole(slot) for _, slot in taken])
        except BaseException:
            with self._changed:
                for key, slot in taken:
                    del self._slots[key]
                    self._free.append(slot.index)
                self._changed.notify_all()
            raise
        with self._changed:
            for _, slot in taken:
                slot.ready = True
            self._changed.notify_all()

    def _give_back(self, slots: Sequence[_Slot]) -> None:
        with self._changed:
            for slot in slots:
                slot.users -= 1
