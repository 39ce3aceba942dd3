import os
import subprocess
import sys
from typing import Any

import pytest

from serving.experts.storage import backends, buffers, made_up, native
from serving.experts.storage.direct_io import Direct
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError

OF = made_up.TWO_LAYERS
DATA = made_up.records(OF)
ROOM = OF.read_bytes


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


# As container engines forbid io_uring.
CHILD = """
import sys
sys.path[:] = {path!r}
from pathlib import Path
from serving.experts.storage import backends, forbidden, made_up
from serving.experts.storage.reader import Container
forbidden.forbid([forbidden.Rule({number}, {error})])
with Container.open(Path(sys.argv[1])) as container, backends.make("direct", container) as backend:
    assert made_up.read(backend, container.present()) == list(made_up.records(container.header).values())
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
    code = CHILD.format(path=sys.path, number=number, error=error)
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
        assert made_up.read(backend, list(DATA)) == list(DATA.values())
    assert backends.available(container.path)["io_uring"] == "not built"
    with pytest.raises(StorageError, match="engine io_uring: not built"):
        backends.make("direct", container, engine="io_uring")


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
