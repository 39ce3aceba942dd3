"""What the measurements were made on: hardware, and the versions of the programs."""

import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import peers, programs

_WHEELS = ("isal", "uv")


def describe(folder: Path) -> dict[str, Any]:
    """CPU, memory, kernel, load, and the file system that `folder` lies on; sizes in bytes."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(_field("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        "kernel": platform.release(),
        "file_system": file_system(folder),
        "disk_free_bytes": shutil.disk_usage(folder).free,
        # Above zero at the start: somebody else was at work, and the figures are worth less.
        "load_average_1min": round(os.getloadavg()[0], 2),
    }


def versions(needed: Mapping[str, str], root: Path | None) -> dict[str, str]:
    """Versions of what is measured, and the commit of the workspace `root`.

    `needed` maps programs to their Debian packages.

    Raises:
        BenchError: one of them is not installed.
    """
    found = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _WHEELS}}
    for program, package in needed.items():
        found[program] = _version(peers.docker_client() if program == "docker" else programs.find(program, package))
    if root:
        found["bazel"] = _version(os.environ.get("BAZEL", "bazel"), "bazel-bootstrap")
        found["moet"] = programs.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], folder=root).strip()
    return found


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`, e.g. ext4."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # proc(5): after a lone dash comes the type.
        left, _, right = line.partition(" - ")
        point = left.split()[4]
        inside = point == "/" or str(folder) == point or str(folder).startswith(f"{point}/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def need_space(folder: Path, wanted: int, what: str) -> None:
    """Checks the free space on the disk of `folder`.

    Raises:
        BenchError: fewer than `wanted` bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if free < wanted:
        short = f"{what} needs about {wanted / 1e9:.1f} GB in {folder}, {free / 1e9:.1f} GB are free"
        raise programs.BenchError(f"{short}; free some, or measure less with --layers or --only")


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _version(program: str, package: str | None = None) -> str:
    """What `program --version` says; Debian's Bazel does not know its version, then `package` has it."""
    number = re.search(r"\d+\.\d+[\w.+-]*", programs.run([program, "--version"]))
    if number:
        return number.group()
    return programs.run(["dpkg-query", "-W", "-f", "${Version}", package]) if package else "unknown"
