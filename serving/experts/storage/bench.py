"""Reads of whole records in random order, beside raw reads of the same file: python3 -m serving.experts.storage.bench.

Raw are dd with iflag=direct (the file's order, whole records; one process, or several with a part each) and a loop of
preadv with O_DIRECT in threads (the same random order, into the same buffers in turn: one buffer alone would stay in
the CPU's cache). Cold is a file that was dropped from the page cache, warm one that is in it; a view is a record where
it is mapped, each of its pages there. Every round runs all ways, starting with another one; medians.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from serving.experts.storage import native
from serving.experts.storage.backend import Backend, Verify
from serving.experts.storage.buffers import aligned
from serving.experts.storage.direct_io import Direct, Engine
from serving.experts.storage.header import Header, Key
from serving.experts.storage.mapped import Mapped
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError
from serving.experts.storage.writer import Writer

_MAPPINGS: tuple[tuple[bool, Verify, str, str], ...] = (
    (True, "never", "mmap, cold, unchecked", "batch"),
    (True, "always", "mmap, cold, checked", "batch"),
    (True, "always", "mmap, cold, checked, views", "views"),
    (True, "always", "mmap, cold, checked, one view", "view"),
    (False, "always", "mmap, warm, checked", "batch"),
    (False, "always", "mmap, warm, checked, one view", "view"),
)
_BLOCK = random.Random(0).randbytes(1 << 20)


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class _Way:
    """A way to read records, and what is to be done before each time it is measured."""

    read: Callable[[list[Key]], object]
    prepare: Callable[[], None] = _nothing


def main() -> int:
    """Runs the bench; prints a table, or JSON with --json."""
    options = _options().parse_args()
    with tempfile.TemporaryDirectory(prefix="moet-storage-", dir=options.folder) as folder:
        written = _write(Path(folder), options.records, options.record_bytes)
        with Container.open(Path(folder)) as container, ExitStack() as stack:
            ways = _ways(container, options, stack)
            rates: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(options.rounds):
                order = list(ways)
                for name in order[number % len(order) :] + order[: number % len(order)]:
                    keys = random.Random(number).sample(container.present(), options.records)
                    rates[name].append(_rate(ways[name], keys, container.header.slot_bytes))
            _print(options, container, rates, written)
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m serving.experts.storage.bench", description=__doc__)
    parser.add_argument("--folder", type=Path, help="on the file system to be measured (default: the temporary folder)")
    parser.add_argument("--records", type=int, default=32, help="records in the file (default: %(default)s)")
    parser.add_argument("--record-bytes", type=int, default=18_800_640, help="bytes of one (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="records asked for at once (default: %(default)s)")
    parser.add_argument("--depth", type=int, default=16, help="reads in flight (default: %(default)s)")
    parser.add_argument("--chunk", type=int, default=4 << 20, help="bytes of a read (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=4, help="of the raw loop, processes of dd (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="medians are over these (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _write(folder: Path, records: int, size: int) -> float:
    """Writes the container; returns bytes a second, safe on disk."""
    header = Header("mxfp4-store", "bench", (0,), records, size, "00" * 32)
    data = (_BLOCK * (size // len(_BLOCK) + 1))[:size]
    begin = time.perf_counter()
    with Writer.open(folder, header) as writer:
        for expert in range(records):
            writer.put(0, expert, data)
        writer.commit()
    return records * size / (time.perf_counter() - begin)


def _rate(way: _Way, keys: list[Key], size: int) -> float:
    way.prepare()
    begin = time.perf_counter()
    way.read(keys)
    return len(keys) * size / (time.perf_counter() - begin)


def _ways(container: Container, options: argparse.Namespace, stack: ExitStack) -> dict[str, _Way]:
    header, room = container.header, [aligned(container.header.read_bytes) for _ in range(options.batch)]
    raw = os.open(container.records, os.O_RDONLY | os.O_DIRECT)
    stack.callback(os.close, raw)

    def dd(keys: list[Key], processes: int) -> None:
        each = -(-len(keys) // processes)
        command = ["dd", f"if={container.records}", "of=/dev/null", f"bs={header.step}", "iflag=direct", "status=none"]
        running = [
            subprocess.Popen([*command, f"skip={first}", f"count={min(each, len(keys) - first)}"])
            for first in range(0, len(keys), each)
        ]
        if sum([one.wait() for one in running]):
            raise StorageError("dd failed")

    def loop(keys: list[Key], threads: int) -> None:
        def part(index: int) -> None:
            for place in range(index, len(keys), threads):
                if os.preadv(raw, [room[place % len(room)]], header.offset(*keys[place])) < header.slot_bytes:
                    raise StorageError("a raw read was short")

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(part, range(threads)))

    many = options.threads = min(options.threads, options.batch)
    ways = {
        "raw: dd, 1 process": _Way(lambda keys: dd(keys, 1)),
        f"raw: dd, {many} processes": _Way(lambda keys: dd(keys, many)),
        "raw: preadv, 1 thread": _Way(lambda keys: loop(keys, 1)),
        f"raw: preadv, {many} threads": _Way(lambda keys: loop(keys, many)),
    }
    here: tuple[Engine, ...] = ("io_uring", "preadv")
    checks: tuple[tuple[Verify, str], ...] = (("never", "unchecked"), ("always", "checked"))
    for engine in here[native.MODULE is None or bool(native.MODULE.without_io_uring()) :]:
        for verify, word in checks:
            one = stack.enter_context(Direct(container, verify, options.depth, options.chunk, engine))
            ways[f"direct, {one.engine}, {word}"] = _Way(partial(_batches, one, room))
    mapping = _Mapping(container, options.depth)
    stack.callback(mapping.close)
    for cold, verify, name, how in _MAPPINGS:
        ways[name] = _Way(partial(mapping.read, how, room), partial(mapping.prepare, cold, verify))
    return ways


def _batches(backend: Backend, room: list[memoryview], keys: list[Key]) -> None:
    for first in range(0, len(keys), len(room)):
        some = keys[first : first + len(room)]
        backend.read(some, room[: len(some)])


class _Mapping:
    """The only mapping of the file, made anew each time: pages that are mapped are not dropped."""

    def __init__(self, container: Container, depth: int) -> None:
        self._container, self._depth = container, depth
        self._now: Mapped | None = None

    def close(self) -> None:
        if self._now is not None:
            self._now.close()
        self._now = None

    def prepare(self, cold: bool, verify: Verify) -> None:
        self.close()
        if cold:
            os.posix_fadvise(self._container.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            _take_and_free(self._container.allocated)
        self._now = Mapped(self._container, verify, self._depth)
        if not cold:
            for key in self._container.present():
                self._now.view(key)

    def read(self, how: str, room: list[memoryview], keys: list[Key]) -> None:
        assert self._now is not None
        if how == "batch":
            _batches(self._now, room, keys)
            return
        step = len(room) if how == "views" else 1
        for first in range(0, len(keys), step):
            self._now.views(keys[first : first + step])


def _take_and_free(size: int) -> None:
    """A virtual machine gives free memory back to its host; that the page cache gets it again is no read's time."""
    memory = aligned(size)
    for at in range(0, size, 4096):
        memory[at] = 1


def _print(options: argparse.Namespace, container: Container, rates: dict[str, list[float]], written: float) -> None:
    medians = {name: statistics.median(found) for name, found in rates.items()}
    best = max(value for name, value in medians.items() if name.startswith("raw"))
    if options.json:
        given = {name: str(value) for name, value in vars(options).items()}
        document = {"schema": "moet.storage-bench.v1", "options": given, "written": written, "rates": rates}
        json.dump({**document, "shares": {name: value / best for name, value in medians.items()}}, sys.stdout, indent=1)
        return
    print(f"{options.records} records of {container.header.slot_bytes:,} B, {options.batch} at once, ", end="")
    print(f"depth {options.depth}, reads of {options.chunk:,} B, {options.rounds} rounds; ", end="")
    print(f"written at {written / 1e9:.2f} GB/s")
    print(f"{'':31} {'GB/s':>6} {'least':>6} {'most':>6} {'of the best raw':>16}")
    for name, found in rates.items():
        figures = (medians[name] / 1e9, min(found) / 1e9, max(found) / 1e9)
        print(f"{name:31} {figures[0]:6.2f} {figures[1]:6.2f} {figures[2]:6.2f} {medians[name] / best:16.1%}")


if __name__ == "__main__":
    sys.exit(main())
