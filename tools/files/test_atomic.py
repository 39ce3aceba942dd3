import os
from pathlib import Path

import pytest

from tools.files import atomic


def test_write_replaces_and_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    atomic.write(path, b"1")
    path.chmod(0o600)
    atomic.write(path, b"2")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"2", 0o600)
    assert os.listdir(path.parent) == ["b"]


def test_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    atomic.write(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        atomic.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_write_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    atomic.write_folder(tmp_path / "f", {"x": b"1", "y/z": b"2"})
    assert (tmp_path / "f/y/z").read_bytes() == b"2"
    with pytest.raises(FileExistsError):
        atomic.write_folder(tmp_path / "f", {"x": b"3"})
    assert (tmp_path / "f/x").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["f"]
