import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.experts.storage import backends, buffers, made_up, native
from serving.experts.storage.backend import Backend
from serving.experts.storage.direct_io import Direct
from serving.experts.storage.header import Key
from serving.experts.storage.mapped import Mapped
from serving.experts.storage.pinned import Pinned
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import DamagedError, StorageError

OF = made_up.header(layers=(1, 3), experts=10)
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


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    made_up.write(tmp_path / "c", OF)
    with Container.open(tmp_path / "c") as opened:
        yield opened


def read(backend: Backend, keys: list[Key]) -> list[bytes]:
    room = [buffers.aligned(ROOM) for _ in keys]
    backend.read(keys, room)
    return [bytes(one[: OF.slot_bytes]) for one in room]


def flip(container: Container, key: Key) -> None:
    with container.records.open("r+b") as stream:
        stream.seek(container.header.offset(*key) + 77)
        stream.write(bytes([DATA[key][77] ^ 1]))


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_every_back_end_gives_the_records(container: Container, name: str, options: dict[str, Any]) -> None:
    keys = [*DATA, *list(DATA)[::-1], (3, 4), (3, 4), (3, 4)]
    with backends.make(name, container, **options) as backend:
        assert backend.name == name
        assert read(backend, keys) == [DATA[key] for key in keys]
        assert read(backend, []) == []
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
        assert read(backend, [(3, 3), (3, 5)]) == [DATA[3, 3], DATA[3, 5]]
        with pytest.raises(DamagedError), backend.lease((3, 4)):
            pass
        assert read(backend, [(3, 3), (3, 5)]) == [DATA[3, 3], DATA[3, 5]]
        with pytest.raises(DamagedError, match="layer 3, expert 4"):
            read(backend, [(3, 3), (3, 4), (3, 5)])


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_every_back_end_refuses_what_is_not_there(container: Container, name: str, options: dict[str, Any]) -> None:
    with backends.make(name, container, **options) as backend:
        for key in ((0, 0), (1, 10), (2, 0), (1, -1)):
            with pytest.raises(StorageError, match="no such record"):
                read(backend, [key])
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
        assert read(backend, list(data)) == list(data.values())
        assert container.allocated < 1 << 20


def test_many_threads_read_at_once(container: Container) -> None:
    failures: list[BaseException] = []

    def work(backend: Backend, seed: int) -> None:
        try:
            keys = random.Random(seed).sample(list(DATA), len(DATA))
            for first in range(0, 20, 4):
                assert read(backend, keys[first : first + 4]) == [DATA[key] for key in keys[first : first + 4]]
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
        assert read(backend, [(1, 2)]) == [DATA[1, 2]]
        flip(container, (1, 2))
        if policy == "always":
            with pytest.raises(DamagedError):
                read(backend, [(1, 2)])
        else:
            assert read(backend, [(1, 2)]) != [DATA[1, 2]]
        flip(container, (1, 1))
        if policy == "never":
            assert read(backend, [(1, 1)]) != [DATA[1, 1]]
        else:
            with pytest.raises(DamagedError):
                read(backend, [(1, 1)])
    with pytest.raises(StorageError, match="always, first or never"):
        backends.make(name, container, verify="sometimes")  # type: ignore[arg-type]


def test_misaligned_buffer(container: Container) -> None:
    with Direct(container) as backend:
        if not backend.direct:
            pytest.skip(backend.note)
        for skip in (1, 512, 2048):
            with pytest.raises(StorageError, match="O_DIRECT needs a multiple of 4096"):
                backend.read([(1, 0)], [buffers.aligned(ROOM + 4096)[skip : skip + ROOM]])
        with pytest.raises(StorageError, match=f"at least {ROOM:,}"):
            backend.read([(1, 0)], [buffers.aligned(ROOM)[: OF.slot_bytes]])


@pytest.mark.parametrize("options", [{"chunk": 1000}, {"chunk": 0}, {"depth": 0}, {"depth": 5000}, {"engine": "aio"}])
def test_options_out_of_range(container: Container, options: dict[str, Any]) -> None:
    with pytest.raises(StorageError, match="expected"):
        backends.make("direct", container, **options)


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
        assert read(backend, [(3, 9)]) == [DATA[3, 9]]
        os.truncate(container.records, container.header.offset(3, 9) + 5000)
        with pytest.raises(StorageError, match=r"layer 3, expert 9: .* was cut short while it was open"):
            read(backend, [(3, 9)])
        with pytest.raises(StorageError, match="cut short"):
            container.read(3, 9)
        if name == "direct":
            assert read(backend, [(3, 7)]) == [DATA[3, 7]]


# A filter that makes io_uring_setup fail with a given error, as container engines install it.
SECCOMP = """
import ctypes, struct, sys
def without(number, error):
    libc = ctypes.CDLL(None, use_errno=True)
    rows = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rows), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
sys.path[:] = {path!r}
from pathlib import Path
from serving.experts.storage import backends, made_up, native, buffers
from serving.experts.storage.reader import Container
of = made_up.header(layers=(1, 3), experts=10)
without({number}, {error})
with Container.open(Path(sys.argv[1])) as container, backends.make("direct", container) as backend:
    keys = container.present()
    room = [buffers.aligned(of.read_bytes) for _ in keys]
    backend.read(keys, room)
    assert [bytes(one[: of.slot_bytes]) for one in room] == list(made_up.records(of).values())
    print(backend.engine, backend.note, backends.available(container.path)["io_uring"], sep="|")
    try:
        backends.make("direct", container, engine="io_uring")
    except Exception as refusal:
        print(type(refusal).__name__, refusal)
"""


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (425, 1, "io_uring_setup: Operation not permitted"),
        (425, 38, "io_uring_setup: Function not implemented"),
        (426, 1, "io_uring without IORING_OP_READ: Operation not permitted"),
        (427, 38, "io_uring without IORING_OP_READ: Function not implemented"),
    ],
)
def test_without_io_uring_threads_read(container: Container, number: int, error: int, words: str) -> None:
    code = SECCOMP.format(path=sys.path, number=number, error=error)
    done = subprocess.run(
        [sys.executable, "-c", code, str(container.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == f"preadv|threads with preadv: {words}|{words}"
    assert second.startswith("StorageError engine io_uring") and words in second


def test_without_the_machine_code_part(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MODULE", None)
    monkeypatch.setattr(native, "WHY", "not built")
    with backends.make("direct", container) as backend:
        assert backend.note == "one read at a time: not built"
        assert read(backend, list(DATA)) == list(DATA.values())
    assert backends.available(container.path)["io_uring"] == "not built"


def test_file_system_without_direct_io(container: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with Direct(container) as backend:
        assert not backend.direct and backend.note == "through the page cache: O_DIRECT: Invalid argument"
        backend.read([(1, 0)], [buffer := bytearray(OF.slot_bytes)])
        assert buffer == DATA[1, 0]


def test_mapped_view_is_the_file(container: Container) -> None:
    with Mapped(container) as backend:
        view = backend.view((1, 5))
        assert view == DATA[1, 5] and view.readonly
        array = np.frombuffer(view, np.uint8)
    assert array.tobytes() == DATA[1, 5]


def test_pinned_holds_what_was_chosen(container: Container) -> None:
    with Pinned(container, keys=[(3, 1), (1, 2), (3, 1)]) as backend:
        assert backend.view((3, 1)) == DATA[3, 1] and backend.view((1, 2)) == DATA[1, 2]
        assert backend.address((1, 2)) % 4096 == 0
        assert backend.how in ("mlock", "cudaHostRegister", "")
        assert bool(backend.note) == (backend.how != "cudaHostRegister")
        with pytest.raises(StorageError, match="is not held in RAM"):
            backend.view((1, 1))
    with pytest.raises(StorageError, match="no records to hold"):
        Pinned(container, keys=[])


def locked_kib() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmLck"))


def test_pinned_gives_the_lock_back(container: Container) -> None:
    before = locked_kib()
    with Pinned(container) as backend:
        if backend.how == "mlock":
            assert locked_kib() >= before + 20 * ROOM // 1024
        order = backend.how
    assert locked_kib() == before and order is not None


def test_pinned_without_the_right_to_lock(container: Container) -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}\nimport os, resource\nfrom pathlib import Path\n"
    code += "from serving.experts.storage import backends, made_up\n"
    code += "from serving.experts.storage.reader import Container\n"
    code += "container = Container.open(Path(sys.argv[1]))\nresource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))\n"
    code += "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    code += "backend = backends.make('pinned', container)\n"
    code += "of = container.header\n"
    code += "assert all(backend.view(k) == v for k, v in made_up.records(of).items())\nprint(backend.note)\n"
    done = subprocess.run(
        [sys.executable, "-c", code, str(container.path)],
        # CUDA locks pages whatever the limit is.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ordinary memory, which may be swapped out" in done.stdout and "`ulimit -l`" in done.stdout


def test_aligned_buffers() -> None:
    for size in (1, 4096, 4097, (2 << 20) - 1, 2 << 20, (6 << 20) + 5):
        view = buffers.aligned(size)
        assert len(view) == size and not view.readonly
        assert buffers.address(view) % (4096 if size < 2 << 20 else 2 << 20) == 0
        view[-1] = 7
    for size in (0, -1, 1 << 62):
        with pytest.raises(StorageError, match=r"buffer of|not to be had"):
            buffers.aligned(size)


def test_closed_back_end(container: Container) -> None:
    backend = Direct(container)
    backend.close()
    backend.close()
    with pytest.raises(StorageError, match="was closed"):
        read(backend, [(1, 0)])
    container.close()
    with pytest.raises(StorageError, match="was closed"):
        container.read(1, 0)
