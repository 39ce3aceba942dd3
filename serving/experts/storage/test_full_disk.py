import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.experts.storage import made_up
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError
from serving.experts.storage.writer import Writer


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_too_little_room_is_said_before_anything_is_written(small_disk: Path) -> None:
    with pytest.raises(StorageError, match=r"120 records take 1,200,120 bytes, [0-9,]+ are free"):
        made_up.write(small_disk, made_up.header(experts=60))
    assert set(os.listdir(small_disk)) == {"writer.lock"}


def test_disk_that_fills_up_meanwhile(small_disk: Path, tmp_path: Path) -> None:
    of = made_up.header(experts=20)
    made_up.write(tmp_path / "whole", of)

    def fill(_: object) -> None:
        with suppress_full(), (small_disk / "other").open("ab") as stream:
            stream.write(bytes(100_000))

    with pytest.raises(
        StorageError, match=r"no space left on its file system: make room, .*\d+ of 40 records are safe"
    ):
        made_up.write(small_disk / "c", of, after=fill, sync_bytes=1)
    with pytest.raises(StorageError, match="is not finished"):
        Container.open(small_disk / "c")
    with pytest.raises(StorageError, match="are free"):
        made_up.write(small_disk / "c", of)
    (small_disk / "other").unlink()
    with Writer.open(small_disk / "c", of) as writer:
        assert 0 < writer.resumed < 40
    made_up.write(small_disk / "c", of)
    assert made_up.files(small_disk / "c") == made_up.files(tmp_path / "whole")


def test_disk_that_is_full(small_disk: Path) -> None:
    with suppress_full(), (small_disk / "other").open("ab") as stream:
        stream.write(bytes(2 << 20))
    with pytest.raises(StorageError, match="no space left on its file system"):
        made_up.write(small_disk)
    (small_disk / "other").unlink()
    made_up.write(small_disk)


def test_file_system_that_tells_no_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255)))
    made_up.write(tmp_path)
    assert Container.open(tmp_path).present() == list(made_up.records(made_up.header()))


def test_disk_that_fills_up_leaves_the_old_container(small_disk: Path) -> None:
    of = made_up.header(experts=12)
    made_up.write(small_disk / "c", of)

    def fill(_: object) -> None:
        with suppress_full(), (small_disk / "other").open("ab") as stream:
            stream.write(bytes(200_000))

    with pytest.raises(StorageError, match="no space left"):
        made_up.write(small_disk / "c", of, made_up.records(of, 1), after=fill, replace=True, sync_bytes=1)
    with Container.open(small_disk / "c") as opened:
        assert {key: bytes(opened.read(*key)) for key in opened.present()} == made_up.records(of)


class suppress_full:  # noqa: N801
    """Suppresses ENOSPC."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return isinstance(error, OSError) and error.errno == 28


@pytest.mark.parametrize("limit", [4096, 100_000])
def test_limit_on_the_size_of_files(tmp_path: Path, limit: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StorageError, match=r"exceeds the largest file .* raise `ulimit -f`"):
            made_up.write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    made_up.write(tmp_path)
    assert Container.open(tmp_path).read(4, 2) == made_up.records(made_up.header())[4, 2]
