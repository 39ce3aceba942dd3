import mmap
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving.preflight.host import Host
from serving.startup import shared_memory

LATER = 1e11


def region(folder: Path, suffix: str = "", size: int = mmap.PAGESIZE) -> Path:
    path = folder / f"vllm_offload_{uuid.uuid4()}{suffix}.mmap"
    path.write_bytes(b"x" * size)
    return path


def kept(host: Host, now: float = LATER) -> dict[str, str]:
    return {one.name: one.why for one in shared_memory.clear(host, now)}


@contextmanager
def proc(folder: Path, *processes: str) -> Iterator[Path]:
    """A procfs of these processes of the real one, and self in the first PID namespace."""
    made = folder / "proc"
    (made / "self/ns").mkdir(parents=True)
    (made / "self/ns/pid").symlink_to("pid:[4026531836]")
    for number in processes:
        (made / number).symlink_to(f"/proc/{number}")
    yield made


HOLD = """
import mmap, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "mapped":
    held = mmap.mmap(descriptor, 0)
    os.close(descriptor)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["mapped", "open"])
def test_region_of_a_process_stays_and_goes_after_it(tmp_path: Path, how: str) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    used, left, second = region(shm), region(shm, "_dp1"), region(shm)
    second = second.rename(f"{second}.1")
    command = [sys.executable, "-c", HOLD, str(used), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with proc(tmp_path, str(holder.pid)) as processes:
            host = Host(proc=processes, shared_memory=shm)
            assert kept(host) == {used.name: "a process has it", left.name: "", second.name: ""}
        assert os.listdir(shm) == [used.name]
        holder.communicate()
    assert kept(host) == {used.name: ""}
    assert os.listdir(shm) == []


def test_others_are_never_touched(tmp_path: Path) -> None:
    names = [
        "psm_1234abcd",
        "sem.mp-x",
        "vllm_offload_.mmap",
        "vllm_offload_engine.mmap",
        f"vllm_offload_{uuid.uuid4()}.mmap.x",
        f"vllm_offload_{uuid.uuid4()}",
        f"vllm_ec_{uuid.uuid4()}.mmap",
        f"xvllm_offload_{uuid.uuid4()}.mmap",
        f"vllm_offload_{uuid.uuid4()}.mmap\n",
    ]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f"vllm_offload_{uuid.uuid4()}.mmap").mkdir()
    (tmp_path / f"vllm_offload_{uuid.uuid4()}.mmap").symlink_to(tmp_path / "psm_1234abcd")
    before = sorted(os.listdir(tmp_path))
    assert shared_memory.clear(Host(shared_memory=tmp_path), LATER) == []
    assert sorted(os.listdir(tmp_path)) == before


def test_young_one_stays(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    path = region(tmp_path / "shm")
    with proc(tmp_path) as processes:
        host = Host(proc=processes, shared_memory=tmp_path / "shm")
        assert kept(host, path.stat().st_mtime + 59) == {path.name: "it is younger than 60 s"}
        assert kept(host, path.stat().st_mtime + 61) == {path.name: ""}


def test_size_is_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    path = region(tmp_path / "shm", size=10 * mmap.PAGESIZE)
    os.truncate(path, 1 << 40)
    with proc(tmp_path) as processes:
        (found,) = shared_memory.clear(Host(proc=processes, shared_memory=tmp_path / "shm"), LATER)
    assert found.size == 10 * mmap.PAGESIZE


def test_processes_that_cannot_be_looked_at_keep_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shm").mkdir()
    path = region(tmp_path / "shm")

    def refused(process: Path) -> set[tuple[int, int]]:
        raise PermissionError(13, "Permission denied", str(process))

    monkeypatch.setattr(shared_memory, "_of_process", refused)
    with proc(tmp_path, "1") as processes:
        why = "1 processes of others cannot be looked at: `sudo moet` sees all"
        assert kept(Host(proc=processes, shared_memory=tmp_path / "shm")) == {path.name: why}
    assert path.exists()


def test_container_that_sees_its_own_processes_keeps_all(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    path = region(tmp_path / "shm")
    with proc(tmp_path) as processes:
        (processes / "self/ns/pid").unlink()
        (processes / "self/ns/pid").symlink_to("pid:[4026532000]")
        assert "in a container" in kept(Host(proc=processes, shared_memory=tmp_path / "shm"))[path.name]
    assert path.exists()


def test_nothing_there(tmp_path: Path) -> None:
    assert shared_memory.clear(Host(proc=tmp_path / "none", shared_memory=tmp_path)) == []
