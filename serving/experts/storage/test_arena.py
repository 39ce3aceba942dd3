import json
import random
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from serving.experts.storage import buffers, heat, made_up
from serving.experts.storage.arena import Arena
from serving.experts.storage.header import Key
from serving.experts.storage.mapped import Mapped
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import DamagedError, StorageError

OF = made_up.header(layers=(0, 1), experts=6)
DATA = made_up.records(OF)
KEYS = list(DATA)


class Counted(Mapped):
    """Counts the records that are read."""

    def __init__(self, container: Container) -> None:
        super().__init__(container)
        self.asked: list[Key] = []

    def read(self, keys: Sequence[Key], into: Sequence[Any]) -> None:
        """Reads and counts."""
        self.asked += keys
        super().read(keys, into)


@pytest.fixture
def below(tmp_path: Path) -> Iterator[Counted]:
    made_up.write(tmp_path / "c", OF)
    with Container.open(tmp_path / "c") as container:
        yield Counted(container)


def use(arena: Arena, key: Key) -> None:
    with arena.lease(key) as view:
        assert view == DATA[key]


def test_last_used_stay(below: Counted) -> None:
    with Arena(below, 3) as arena:
        for key in (KEYS[0], KEYS[1], KEYS[2], KEYS[0], KEYS[3]):
            use(arena, key)
        assert arena.resident() == [KEYS[2], KEYS[0], KEYS[3]]
        stats = arena.stats()
        assert (stats.hits, stats.misses, stats.evictions) == (1, 4, 1)
        assert below.asked == KEYS[:4]


def test_any_order_is_that_of_a_plain_lru(below: Counted) -> None:
    pick = random.Random(3)
    model: OrderedDict[Key, None] = OrderedDict()
    misses = 0
    with Arena(below, 5) as arena:
        for _ in range(600):
            key = pick.choice(KEYS)
            use(arena, key)
            if key in model:
                model.move_to_end(key)
            else:
                misses += 1
                if len(model) == 5:
                    model.popitem(last=False)
                model[key] = None
            assert arena.resident() == list(model)
        assert arena.stats().misses == misses == len(below.asked)
        assert arena.stats().hits == 600 - misses


def test_scan_fills_free_slots_and_evicts_nothing(below: Counted) -> None:
    with Arena(below, 5) as arena:
        use(arena, KEYS[7])
        assert arena.scan(KEYS) == 4
        assert set(arena.resident()) == {KEYS[7], *KEYS[:4]}
        assert arena.scan(KEYS) == 0 and arena.stats().evictions == 0
        assert arena.stats().scanned == 4 and arena.stats().misses == 1
        # What a scan brought goes before what was used, the last of it first.
        use(arena, KEYS[9])
        assert KEYS[3] not in arena.resident() and KEYS[7] in arena.resident()


def test_held_record_is_not_evicted(below: Counted) -> None:
    with Arena(below, 2) as arena, ExitStack() as stack:
        views = [stack.enter_context(arena.lease(key)) for key in KEYS[:2]]
        for key in KEYS[2:]:
            use(arena, key)
        assert views == [DATA[key] for key in KEYS[:2]]
        assert arena.resident() == KEYS[:2] and arena.stats().passed_by == len(KEYS) - 2


def test_one_batch_larger_than_the_arena(below: Counted) -> None:
    with Arena(below, 2) as arena:
        keys = [*KEYS, *KEYS[:3], KEYS[0]]
        room = [buffers.aligned(OF.read_bytes) for _ in keys]
        arena.read(keys, room)
        assert [bytes(one[: OF.slot_bytes]) for one in room] == [DATA[key] for key in keys]
        assert arena.stats().hits + arena.stats().misses == len(keys)


def test_threads_that_want_the_same_record_read_it_once(below: Counted) -> None:
    with Arena(below, 12) as arena:
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                for key in random.Random(seed).sample(KEYS, len(KEYS)):
                    use(arena, key)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures and sorted(below.asked) == sorted(KEYS)


def test_threads_with_too_few_slots(below: Counted) -> None:
    with Arena(below, 3) as arena:
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            pick = random.Random(seed)
            try:
                for _ in range(60):
                    keys = pick.choices(KEYS, k=3)
                    room = [buffers.aligned(OF.read_bytes) for _ in keys]
                    arena.read(keys, room)
                    assert [bytes(one[: OF.slot_bytes]) for one in room] == [DATA[key] for key in keys]
                    use(arena, keys[0])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert not failures and not any(thread.is_alive() for thread in threads)
        assert len(arena.resident()) == 3


def test_damaged_record_takes_no_slot(below: Counted) -> None:
    with below.container.records.open("r+b") as stream:
        stream.seek(OF.offset(*KEYS[1]))
        stream.write(b"rot")
    with Arena(below, 2) as arena:
        for _ in range(5):
            with pytest.raises(DamagedError), arena.lease(KEYS[1]):
                pass
            with pytest.raises(DamagedError):
                arena.read([KEYS[0], KEYS[1]], [bytearray(OF.slot_bytes), bytearray(OF.slot_bytes)])
        use(arena, KEYS[0])
        use(arena, KEYS[2])
        assert set(arena.resident()) == {KEYS[0], KEYS[2]}


def test_heat_file_preheats_the_hottest(below: Counted, tmp_path: Path) -> None:
    path = tmp_path / "heat.json"
    with Arena(below, 2, path) as arena:
        assert arena.resident() == [] and arena.note == ""
        for key, times in ((KEYS[4], 9), (KEYS[2], 5), (KEYS[0], 1)):
            for _ in range(times):
                use(arena, key)
        arena.save_heat()
    again = Counted(below.container)
    with Arena(again, 2, path) as arena:
        assert again.asked == [KEYS[4], KEYS[2]] and arena.stats().scanned == 2
        # The coldest of them goes first.
        assert arena.resident() == [KEYS[2], KEYS[4]]
        arena.save_heat()
    assert heat.load(path, OF)[0] == {KEYS[4]: 4.5, KEYS[2]: 2.5, KEYS[0]: 0.5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"checkpoint": "00" * 32}, "is of another model"),
        ({"version": 2}, "is no heat file of version 1"),
        ({"schema": "x"}, "is no heat file"),
        ({"heat": [[1, 2]]}, "cannot be read"),
        ({"heat": [["a", 0, 1]]}, ""),
        ({"heat": [[9, 0, 1], [0, 99, 1], [0, 0, -1]]}, ""),
    ],
)
def test_heat_file_that_does_not_fit_is_said_and_not_used(
    below: Counted, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "heat.json"
    heat.save(path, OF, {KEYS[0]: 1.0})
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with Arena(below, 2, path) as arena:
        assert arena.resident() == [] and words in arena.note
        use(arena, KEYS[0])


def test_heat_file_that_is_no_file(below: Counted, tmp_path: Path) -> None:
    path = tmp_path / "heat.json"
    for text in ('{"schema"', "[" * 200_000):
        path.write_text(text)
        with Arena(Counted(below.container), 2, path) as arena:
            assert "cannot be read as a heat file" in arena.note
    path.unlink()
    path.symlink_to(tmp_path / "else")
    with Arena(Counted(below.container), 2, path) as arena:
        assert "symbolic link" in arena.note


def test_heat_file_that_cannot_be_written_leaves_the_old(below: Counted, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with Arena(below, 2, tmp_path / "f" / "heat.json") as arena:
        use(arena, KEYS[0])
        with pytest.raises(StorageError, match="expected a folder"):
            arena.save_heat()
