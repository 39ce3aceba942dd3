import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from serving.experts.storage import backends, buffers, made_up
from serving.experts.storage.backend import Backend
from serving.experts.storage.header import Key
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import DamagedError, StorageError

OF = made_up.TWO_LAYERS
DATA = made_up.records(OF)
ROOM = OF.read_bytes

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("mmap", {}),
    ("direct", {}),
    ("direct", {"engine": "io_uring", "depth": 1, "chunk": 4096}),
    ("direct", {"engine": "preadv", "depth": 3, "chunk": 4096}),
    ("direct", {"engine": "io_uring", "depth": 5, "chunk": 8192}),
    ("pinned", {}),
    ("arena", {"slots": 1}),
    ("arena", {"slots": 7, "below": "mmap"}),
    ("arena", {"slots": 30}),
]


def flip(container: Container, key: Key) -> None:
    with container.records.open("r+b") as stream:
        stream.seek(container.header.offset(*key) + 77)
        stream.write(bytes([DATA[key][77] ^ 1]))


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_every_back_end_gives_the_records(container: Container, name: str, options: dict[str, Any]) -> None:
    keys = [*DATA, *list(DATA)[::-1], (3, 4), (3, 4), (3, 4)]
    with backends.make(name, container, **options) as backend:
        assert backend.name == name
        assert made_up.read(backend, keys) == [DATA[key] for key in keys]
        assert made_up.read(backend, []) == []
        for key in keys:
            with backend.lease(key) as view:
                assert view.readonly and view == DATA[key]


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_every_back_end_sees_a_flipped_bit(container: Container, name: str, options: dict[str, Any]) -> None:
    flip(container, (3, 4))
    if name == "pinned":
        with pytest.raises(DamagedError, match="layer 3, expert 4"):
            backends.make(name, container, **options)
        return
    with backends.make(name, container, **options) as backend:
        assert made_up.read(backend, [(3, 3), (3, 5)]) == [DATA[3, 3], DATA[3, 5]]
        with pytest.raises(DamagedError), backend.lease((3, 4)):
            pass
        assert made_up.read(backend, [(3, 3), (3, 5)]) == [DATA[3, 3], DATA[3, 5]]
        with pytest.raises(DamagedError, match="layer 3, expert 4"):
            made_up.read(backend, [(3, 3), (3, 4), (3, 5)])


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_every_back_end_refuses_what_is_not_there(container: Container, name: str, options: dict[str, Any]) -> None:
    with backends.make(name, container, **options) as backend:
        for key in ((0, 0), (1, 10), (2, 0), (1, -1)):
            with pytest.raises(StorageError, match="no such record"):
                made_up.read(backend, [key])
            with pytest.raises(StorageError, match="no such record"), backend.lease(key):
                pass
        with pytest.raises(StorageError, match="1 buffers for 2 records"):
            backend.read([(1, 0), (1, 1)], [buffers.aligned(ROOM)])
        with pytest.raises(StorageError, match="expected a writable one"):
            backend.read([(1, 0)], [bytes(ROOM)])
        with pytest.raises(StorageError, match=r"buffer of 10,000 bytes"):
            backend.read([(1, 0)], [bytearray(10_000)])


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_offsets_beyond_4_gib(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    of = made_up.header(layers=(4000,), experts=256, slot_bytes=made_up.SLOT)
    data = {(4000, 7): b"x" * made_up.SLOT, (4000, 255): b"y" * made_up.SLOT}
    assert of.offset(4000, 7) > 1 << 32
    made_up.write(tmp_path, of, data)
    with Container.open(tmp_path) as container, backends.make(name, container, **options) as backend:
        assert made_up.read(backend, list(data)) == list(data.values())
        assert container.allocated < 1 << 20


def test_many_threads_read_at_once(container: Container) -> None:
    failures: list[BaseException] = []

    def work(backend: Backend, seed: int) -> None:
        try:
            keys = random.Random(seed).sample(list(DATA), len(DATA))
            for first in range(0, 20, 4):
                assert made_up.read(backend, keys[first : first + 4]) == [DATA[key] for key in keys[first : first + 4]]
                with backend.lease(keys[first]) as view:
                    assert view == DATA[keys[first]]
        except BaseException as error:
            failures.append(error)

    for name, options in WAYS:
        with backends.make(name, container, **options) as backend:
            threads = [threading.Thread(target=work, args=(backend, seed)) for seed in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not failures


@pytest.mark.parametrize("policy", ["always", "first", "never"])
@pytest.mark.parametrize("name", ["mmap", "direct"])
def test_policy_of_checking(container: Container, name: str, policy: Any) -> None:
    with backends.make(name, container, verify=policy) as backend:
        assert made_up.read(backend, [(1, 2)]) == [DATA[1, 2]]
        flip(container, (1, 2))
        if policy == "always":
            with pytest.raises(DamagedError):
                made_up.read(backend, [(1, 2)])
        else:
            assert made_up.read(backend, [(1, 2)]) != [DATA[1, 2]]
        flip(container, (1, 1))
        if policy == "never":
            assert made_up.read(backend, [(1, 1)]) != [DATA[1, 1]]
        else:
            with pytest.raises(DamagedError):
                made_up.read(backend, [(1, 1)])
    with pytest.raises(StorageError, match="always, first or never"):
        backends.make(name, container, verify="sometimes")  # type: ignore[arg-type]


def test_names_and_options_of_back_ends(container: Container) -> None:
    with pytest.raises(StorageError, match="expected one of mmap, direct, pinned, arena"):
        backends.make("nvme", container)
    with pytest.raises(StorageError, match="slots: 0"):
        backends.make("arena", container)
    with pytest.raises(StorageError, match="below: 'pinned'"):
        backends.make("arena", container, slots=1, below="pinned")


@pytest.mark.parametrize(("name", "options"), WAYS[:5])
def test_file_that_is_cut_short_while_open(container: Container, name: str, options: dict[str, Any]) -> None:
    with backends.make(name, container, **options) as backend:
        assert made_up.read(backend, [(3, 9)]) == [DATA[3, 9]]
        os.truncate(container.records, container.header.offset(3, 9) + 5000)
        with pytest.raises(StorageError, match=r"layer 3, expert 9: .* was cut short while it was open"):
            made_up.read(backend, [(3, 9)])
        with pytest.raises(StorageError, match="cut short"):
            container.read(3, 9)
        if name == "direct":
            assert made_up.read(backend, [(3, 7)]) == [DATA[3, 7]]


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_closed_back_end(container: Container, name: str, options: dict[str, Any]) -> None:
    backend = backends.make(name, container, **options)
    backend.close()
    backend.close()
    with pytest.raises(StorageError, match="was closed"):
        made_up.read(backend, [(1, 0)])
    with pytest.raises(StorageError, match="was closed"), backend.lease((1, 0)):
        pass
    container.close()
    with pytest.raises(StorageError, match="was closed"):
        container.read(1, 0)


def left() -> tuple[int, int, int]:
    """Threads, open files and mappings of files of records in this process."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return threads(), len(os.listdir("/proc/self/fd")), maps.count("/records-")


def threads() -> int:
    """This process's threads; those of io_uring itself, which the kernel keeps for the next ring, are not counted."""
    return sum(not one.read_text().startswith("iou-") for one in Path("/proc/self/task").glob("*/comm"))


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_nothing_is_left_after_close(container: Container, name: str, options: dict[str, Any]) -> None:
    before = left()
    for damaged in (False, True):
        if damaged:
            flip(container, (3, 4))
        with suppress(DamagedError), backends.make(name, container, **options) as backend:
            assert threads() <= before[0] + 64
            made_up.read(backend, list(DATA))
        assert left() == before


@pytest.mark.parametrize(("name", "options"), WAYS[:5])
def test_back_end_in_a_forked_process(container: Container, name: str, options: dict[str, Any]) -> None:
    """Threads and rings stay in the process that made them: a child is refused, and does not wait for them."""
    backend = backends.make(name, container, **options)
    made_up.read(backend, list(DATA))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            made_up.read(backend, [(1, 0)])
        except StorageError as error:
            status = 0 if "make one in each process" in str(error) else 2
        finally:
            backend.close()
            del backend
            os._exit(status)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert made_up.read(backend, [(1, 0)]) == [DATA[1, 0]]
    backend.close()


def test_system_that_gives_no_threads(container: Container) -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}\nimport os, resource\nfrom pathlib import Path\n"
    code += "from serving.experts.storage import backends, made_up\n"
    code += "from serving.experts.storage.reader import Container\n"
    code += "container = Container.open(Path(sys.argv[1]))\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
    code += "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    code += "data, before = made_up.records(container.header), len(os.listdir('/proc/self/task'))\n"
    code += f"for name, options in {[WAYS[0], ('direct', {}), WAYS[3]]!r}:\n"
    code += "    with backends.make(name, container, **options) as backend:\n"
    code += "        assert len(os.listdir('/proc/self/task')) == before\n"
    code += "        assert made_up.read(backend, list(data)) == list(data.values())\nprint('right')\n"
    done = subprocess.run(
        [sys.executable, "-c", code, str(container.path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize(("name", "options"), WAYS[:2])
def test_errors_of_a_device_name_the_record(container: Container, name: str, options: dict[str, Any]) -> None:
    with (
        backends.make(name, container, **options) as backend,
        pytest.raises(StorageError, match=r"layer 3, expert 4: the device failed to read it"),
    ):
        backend.settle([(1, 0), (3, 4)], [True, True], [(0, 10_001, container.checksum(1, 0)), (errno.EIO, 0, 0)])
