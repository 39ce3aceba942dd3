import os
import subprocess
import sys

import pytest

from serving.experts.storage import buffers, made_up
from serving.experts.storage.pinned import Pinned
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError

OF = made_up.TWO_LAYERS
DATA = made_up.records(OF)
ROOM = OF.read_bytes


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
