"""What goes and what stays, beside a writer, with a foreign user, and where names are hostile."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving.kvcache import tier, ttl
from serving.kvcache.fake_tier import FakeTier, Silent, set_age
from serving.kvcache.ttl import Limits, Sweep
from tools.cli.errors import UserError

NO_CAP = 10**15


def sweep(root: Path, hours: float = 72, cap: int = NO_CAP, dry_run: bool = False) -> Sweep:
    with tier.opened(root) as opened:
        done = ttl.sweep(opened, Limits(hours, cap), time.time(), Silent(), dry_run)
        assert opened.faults.told == []
        return done


def tree(root: Path) -> set[Path]:
    return set(root.rglob("*"))


@pytest.fixture
def fake(tmp_path: Path) -> FakeTier:
    return FakeTier(tmp_path / "kv").make()


def test_last_use_is_the_later_of_reading_and_writing(fake: FakeTier) -> None:
    used = {number: fake.add(number) for number in range(4)}
    set_age(used[0], 100, read_hours=100)
    set_age(used[1], 100, read_hours=71)
    set_age(used[2], 71, read_hours=100)
    set_age(used[3], -5, read_hours=-5)
    done = sweep(fake.root)
    assert [number for number, path in used.items() if path.exists()] == [1, 2, 3]
    assert (done.unused.files, done.unused.size, done.kept.files, done.kept.size) == (1, 1000, 3, 3000)


def test_temporary_files_go_after_an_hour(fake: FakeTier) -> None:
    fake.add(1, hours=1)
    dead, alive = fake.add_temporary(2, seconds=3660), fake.add_temporary(3, seconds=3500)
    probe = fake.root / fake.base / ".o_direct_probe_1.tmp"
    probe.write_bytes(b"")
    set_age(probe, 2)
    # One that is read, as a backup does, is written no more for that.
    set_age(dead, 2, read_hours=0)
    done = sweep(fake.root, hours=0.5, cap=1)
    assert (dead.exists(), alive.exists(), probe.exists()) == (False, True, False)
    assert (done.temporary.files, done.unused.files, done.kept.files) == (2, 1, 0)


def test_over_the_cap_the_oldest_go_down_to_nine_tenths(fake: FakeTier) -> None:
    paths = [fake.add(number, hours=number) for number in range(40)]
    assert sweep(fake.root, cap=40_000).over_cap.files == 0
    done = sweep(fake.root, cap=30_000)
    assert [path for path in paths if path.exists()] == paths[:27]
    assert (done.over_cap.files, done.over_cap.size, done.kept.files, done.kept.size) == (13, 13_000, 27, 27_000)
    fake.add(100)
    assert sweep(fake.root, cap=30_000).over_cap.files == 0


def test_cap_is_for_all_folders_together(fake: FakeTier) -> None:
    other = FakeTier(fake.root / "indexer-fp8", dtype="nvfp4", size=3000).make()
    here = [fake.add(number, hours=number) for number in range(10)]
    there = [other.add(number, hours=number + 0.5) for number in range(10)]
    assert sweep(fake.root, cap=20_000).kept.size == 17_000
    assert [path.exists() for path in here] == [True] * 5 + [False] * 5
    assert [path.exists() for path in there] == [True] * 4 + [False] * 6


def test_of_blocks_of_one_second_only_as_many_go_as_must(fake: FakeTier) -> None:
    second = time.time() - 3600
    for number in range(100):
        os.utime(fake.add(number), (second, second))
    done = sweep(fake.root, cap=50_000)
    assert (done.over_cap.files, done.kept.files) == (55, 45)


def test_cap_counts_what_stays_after_the_age(fake: FakeTier) -> None:
    old = [fake.add(number, hours=100) for number in range(10)]
    new = [fake.add(number, hours=1) for number in range(10, 15)]
    done = sweep(fake.root, cap=5000)
    assert (done.unused.files, done.over_cap.files) == (10, 0)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in new)


def test_dry_run_says_the_same_and_deletes_nothing(fake: FakeTier) -> None:
    for number in range(30):
        fake.add(number, hours=number * 4)
    fake.add_temporary(99)
    before = tree(fake.root)
    dry = sweep(fake.root, cap=10_000, dry_run=True)
    assert tree(fake.root) == before
    wet = sweep(fake.root, cap=10_000)
    counts = ("unused", "over_cap", "temporary", "kept")
    assert [getattr(dry, name) for name in counts] == [getattr(wet, name) for name in counts]
    assert wet.over_cap.files > 0 < wet.unused.files


def test_folders_config_and_what_is_anybody_elses_stay(fake: FakeTier, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    set_age(outside, 999)
    block = fake.add(1, hours=999)
    linked = fake.path(2)
    linked.parent.mkdir(parents=True)
    linked.symlink_to(outside)
    set_age(linked, 999)
    (block.parents[2] / "fff").symlink_to(tmp_path)
    for name in ("notes", f"{block.name}.bak", f"{block.name}_x.tmp", "-rf", "a\nb", os.fsdecode(b"\xff.bin")):
        (block.parent / name).write_bytes(b"mine")
        set_age(block.parent / name, 999)
    before = tree(fake.root)
    assert sweep(fake.root, cap=1).unused.files == 1
    assert tree(fake.root) == before - {block}
    assert outside.read_bytes() == b"mine"


class _Reading(Silent):
    """Reads a block when the oldest begin to be deleted."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def start(self, what: str, total: int) -> None:
        super().start(what, total)
        if len(self.phases) == 2:
            set_age(self.path, 30, read_hours=0)


def test_block_that_is_used_meanwhile_stays(fake: FakeTier) -> None:
    paths = [fake.add(number, hours=number) for number in range(20)]
    hearing = _Reading(paths[19])
    with tier.opened(fake.root) as opened:
        done = ttl.sweep(opened, Limits(72, 10_000), time.time(), hearing)
    assert paths[19].exists()
    assert [path.exists() for path in paths[:19]] == [True] * 9 + [False] * 10
    assert (done.over_cap.files, done.kept.files) == (10, 10)
    assert hearing.phases == [("looking at blocks", 0), ("deleting the oldest", 11_000)]
    assert hearing.advanced == [20_000, 10_000]


def test_block_that_another_deletes_first_is_no_fault(fake: FakeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [fake.add(number, hours=100) for number in range(5)]
    unlink = os.unlink

    def late(name: str, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", late)
    done = sweep(fake.root)
    assert (done.unused.files, done.kept.files) == (0, 0)
    assert not any(path.exists() for path in paths)


def test_only_one_deletes_at_a_time(fake: FakeTier) -> None:
    path = fake.add(1, hours=100)
    with tier.opened(fake.root) as opened:
        ttl.sweep(opened, Limits(200, NO_CAP), time.time(), Silent())
        with pytest.raises(UserError, match="another `moet kvcache ttl` is at work in it; wait for it to end"):
            sweep(fake.root)
        assert sweep(fake.root, dry_run=True).unused.files == 1
        assert path.exists()
    sweep(fake.root)
    assert not path.exists()


def test_blocks_that_cannot_be_read_can_be_deleted(fake: FakeTier) -> None:
    path = fake.add(1, hours=100)
    path.chmod(0)
    assert sweep(fake.root).unused.files == 1


@contextmanager
def at_work(what: Callable[[int], object]) -> Iterator[None]:
    """Calls `what` with 0, 1, 2 ... on a thread of its own while the block runs; an error there is an error here."""
    stop, errors = threading.Event(), []

    def work() -> None:
        number = 0
        while not stop.is_set():
            try:
                what(number)
            except Exception as error:
                errors.append(error)
                return
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert errors == []


def test_ten_thousand_files_and_a_writer(fake: FakeTier) -> None:
    for number in range(10_000):
        fake.add(number, hours=number % 100)
    folders = {path for path in fake.root.rglob("*") if path.is_dir()}
    with at_work(lambda number: fake.add(100_000 + number)):
        by_age = sweep(fake.root)
        by_cap = sweep(fake.root, cap=5_000_000)
    # Of 0 to 99 hours, 72 to 99: what is 72 hours old to the second is a moment older when it is looked at.
    assert by_age.unused.files == 2800
    assert by_cap.unused.files == 0
    assert by_cap.over_cap.files > 2000
    assert abs(by_cap.kept.size - 4_500_000) <= 1000
    assert all(path.is_dir() for path in folders)
    assert all(path.stat().st_size == fake.size for path in fake.root.rglob("*.bin"))
