import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.experts.storage import made_up, native
from serving.experts.storage.mapped import Mapped
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import DamagedError, StorageError

OF = made_up.TWO_LAYERS
DATA = made_up.records(OF)
# Some of their pages lie in large pages with those of others.
LARGE = made_up.header(layers=(0,), experts=4, slot_bytes=(5 << 20) + 4097)
LARGE_DATA = made_up.records(LARGE)


def test_mapped_view_is_the_file(container: Container) -> None:
    with Mapped(container) as backend:
        view = backend.view((1, 5))
        assert view == DATA[1, 5] and view.readonly
        array = np.frombuffer(view, np.uint8)
    assert array.tobytes() == DATA[1, 5]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large")
    made_up.write(path, LARGE)
    return path


def forget(container: Container) -> None:
    """Drops the file from the page cache."""
    os.posix_fadvise(container.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("depth", [1, 2, 16])
def test_records_that_are_not_in_the_page_cache(large: Path, depth: int) -> None:
    with Container.open(large) as container:
        for keys in ([(0, 3)], [(0, 2), (0, 0), (0, 2)], list(LARGE_DATA)):
            forget(container)
            with Mapped(container, depth=depth) as backend:
                assert made_up.read(backend, keys) == [LARGE_DATA[key] for key in keys]
            forget(container)
            with Mapped(container, depth=depth) as backend:
                assert [bytes(backend.view(key)) for key in keys] == [LARGE_DATA[key] for key in keys]
            forget(container)
            with Mapped(container, depth=depth) as backend:
                assert backend.views(keys) == [LARGE_DATA[key] for key in keys] and backend.views([]) == []


def test_flipped_bit_in_any_large_page(large: Path, tmp_path: Path) -> None:
    path = tmp_path / "c"
    shutil.copytree(large, path)
    for at in (0, 2 << 20, LARGE.slot_bytes - 1):
        made_up.flip(made_up.data_file(path), LARGE.offset(0, 1) + at)
        with Container.open(path) as container, Mapped(container) as backend:
            for way in (
                backend.view,
                lambda key: backend.views([(0, 0), key]),
                lambda key: made_up.read(backend, [key]),
            ):
                with pytest.raises(DamagedError, match="layer 0, expert 1"):
                    way((0, 1))
            assert backend.view((0, 2)) == LARGE_DATA[0, 2]
        made_up.flip(made_up.data_file(path), LARGE.offset(0, 1) + at)


# madvise without MADV_POPULATE_READ (Linux 5.14), madvise without MADV_HUGEPAGE, and no fadvise64 at all.
CHILD = """
import sys
sys.path[:] = {path!r}
from pathlib import Path
from serving.experts.storage import backends, forbidden, made_up
from serving.experts.storage.reader import Container
forbidden.forbid([forbidden.Rule(*rule) for rule in {rules!r}])
with Container.open(Path(sys.argv[1])) as container:
    expected = made_up.records(container.header)
    for verify in ("always", "never"):
        with backends.make("mmap", container, verify) as backend:
            assert made_up.read(backend, list(expected)) == list(expected.values())
            assert all(backend.view(key) == record for key, record in expected.items())
print("right")
"""
POPULATE, HUGE, AHEAD = (28, errno.EINVAL, 2, 22), (28, errno.EINVAL, 2, 14), (221, errno.ENOSYS)


@pytest.mark.parametrize("rules", [[POPULATE], [HUGE], [POPULATE, HUGE], [POPULATE, HUGE, AHEAD]])
def test_kernels_without_the_calls(large: Path, rules: list[Any]) -> None:
    with Container.open(large) as container:
        forget(container)
    code = CHILD.format(path=sys.path, rules=rules)
    done = subprocess.run([sys.executable, "-c", code, str(large)], capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr


def test_without_the_machine_code_part(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MODULE", None)
    monkeypatch.setattr(native, "WHY", "not built")
    shutil.copytree(large, tmp_path / "c")
    with Container.open(tmp_path / "c") as container, Mapped(container) as backend:
        assert backend.note == "brought in by one thread: not built"
        assert made_up.read(backend, list(LARGE_DATA)) == list(LARGE_DATA.values())
        assert backend.view((0, 3)) == LARGE_DATA[0, 3]
        made_up.flip(container.records, LARGE.offset(0, 3) + 7)
        for way in (backend.view, lambda key: made_up.read(backend, [key])):
            with pytest.raises(DamagedError, match="layer 0, expert 3"):
                way((0, 3))


CUT = """
import os, sys
sys.path[:] = {path!r}
from pathlib import Path
from serving.experts.storage.mapped import Mapped
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError
with Container.open(Path(sys.argv[1])) as container, Mapped(container) as backend:
    looked = backend._require_whole
    def cut_after_it_looked(keys):
        looked(keys)
        os.truncate(container.records, container.header.offset(0, 1) + 5000)
    backend._require_whole = cut_after_it_looked
    try:
        backend.view((0, 1))
    except StorageError as error:
        print(error)
"""


def test_file_cut_short_after_its_size_was_looked_at(large: Path, tmp_path: Path) -> None:
    """The process would end with SIGBUS at a touch of what is no longer there."""
    shutil.copytree(large, tmp_path / "c")
    code = CUT.format(path=sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "c")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done
    assert "layer 0, expert 1: 5,000 of 5,246,977 bytes: the file was cut short" in done.stdout


@pytest.mark.parametrize("depth", [0, 5000])
def test_depth_out_of_range(container: Container, depth: int) -> None:
    with pytest.raises(StorageError, match=f"depth {depth}: depth: expected 1 to 1024"):
        Mapped(container, depth=depth)


def test_view_outlives_its_back_end(container: Container) -> None:
    backend = Mapped(container)
    view = backend.view((3, 3))
    backend.close()
    assert view == DATA[3, 3]
    view.release()
