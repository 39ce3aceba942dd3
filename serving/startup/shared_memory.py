"""Offload regions that a server which died left in /dev/shm: memory of the host that nothing gives back.

vLLM 0.33.0 keeps the KV blocks of host memory in /dev/shm/vllm_offload_ENGINE.mmap, and .mmap.1 and so on
(v1/kv_offload/cpu/shared_offload_region.py:128-138). Without a disk tier it takes the names away once all processes
have mapped them. With one, they stay as long as the server (v1/kv_offload/tiering/spec.py:390, 523), or longer, where
that is killed. ENGINE is a UUID, with _dpN for a data-parallel copy (config/kv_transfer.py:111,
v1/engine/core.py:1491). Nothing else in /dev/shm is ever touched.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from serving.preflight.host import Host

_REGION = re.compile(r"vllm_offload_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(_dp\d+)?\.mmap(\.\d+)?")
# A region is made, mapped and unlinked within the half minute that vLLM waits for its size
# (shared_offload_region.py:33).
_OLD_SECONDS = 60
# The first PID namespace's inode: PROC_PID_INIT_INO of include/linux/proc_ns.h.
_ALL_PROCESSES = "pid:[4026531836]"


@dataclass(frozen=True)
class Region:
    """A region by name; `size` in bytes of memory that it takes. `why` it was left alone; "" for one that is gone."""

    name: str
    size: int
    why: str = ""


def clear(host: Host, now: float | None = None) -> list[Region]:
    """Removes regions that no process has mapped or open, and returns all that there are.

    Where some process cannot be looked at, none is removed: it may be that process's. `now` is in seconds since the
    epoch. Raises OSError where /dev/shm cannot be listed.
    """
    folder = os.open(host.shared_memory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = dict(_regions(folder))
        if not found:
            return []
        in_use, unseen = _in_use(host.proc)
        results = []
        for name, status in sorted(found.items()):
            size = status.st_blocks * 512
            why = _keep(status, in_use, unseen, time.time() if now is None else now)
            results.append(Region(name, size, why or _remove(folder, name, status)))
        return results
    finally:
        os.close(folder)


def _regions(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    for name in os.listdir(folder):
        if _REGION.fullmatch(name):
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield name, status


def _keep(status: os.stat_result, in_use: set[tuple[int, int]], unseen: str, now: float) -> str:
    if (status.st_dev, status.st_ino) in in_use:
        return "a process has it"
    if now - max(status.st_mtime, status.st_ctime) < _OLD_SECONDS:
        return f"it is younger than {_OLD_SECONDS} s"
    return unseen


def _remove(folder: int, name: str, looked_at: os.stat_result) -> str:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (status.st_dev, status.st_ino) != (looked_at.st_dev, looked_at.st_ino):
            return "another took its name"
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        return str(error.strerror).lower()
    return ""


def _in_use(proc: Path) -> tuple[set[tuple[int, int]], str]:
    """(device, inode) of every file that a process has mapped or open; and why that may not be all of them, or ""."""
    found: set[tuple[int, int]] = set()
    hidden = 0
    for number in os.listdir(proc):
        if number.isdecimal():
            try:
                found |= _of_process(proc / number)
            except PermissionError:
                hidden += 1
            except (FileNotFoundError, ProcessLookupError):
                continue
    try:
        whole = os.readlink(proc / "self/ns/pid") == _ALL_PROCESSES
    except OSError:
        whole = False
    if not whole:
        return found, "whoever asks is in a container, and sees the processes of that alone"
    if hidden:
        return found, f"{hidden} processes of others cannot be looked at: `sudo moet` sees all"
    return found, ""


def _of_process(process: Path) -> set[tuple[int, int]]:
    found = set()
    for line in (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines():
        # address perms offset major:minor inode path
        fields = line.split(maxsplit=5)
        major, _, minor = fields[3].partition(":")
        found.add((os.makedev(int(major, 16), int(minor, 16)), int(fields[4])))
    for link in os.listdir(process / "fd"):
        try:
            status = os.stat(process / "fd" / link)
        except FileNotFoundError:
            continue
        found.add((status.st_dev, status.st_ino))
    return found
