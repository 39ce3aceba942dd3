"""The host that checks look at. Tests hand them another one."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from images.engine.docker_engine import DockerEngine
from images.engine.interface import EngineImage
from serving.containers.containers import Containers
from serving.preflight import collective_run, programs
from serving.preflight.programs import Done


class Docker(Protocol):
    """What checks ask of an engine."""

    name: str

    @property
    def info(self) -> Mapping[str, Any]:
        """The engine's answer to GET /info of Docker's API."""

    def containers(self) -> list[dict[str, Any]]:
        """All containers, running or not, as GET /containers/json lists them."""

    def find(self, name: str) -> EngineImage | None:
        """The image called `name`; None where there is none."""

    def close(self) -> None:
        """Give the connection back."""


@dataclass(frozen=True)
class Space:
    """A file system. Sizes are in bytes; inodes are None where it makes them as needed."""

    total: int
    free: int
    inodes: int | None
    read_only: bool


def space(path: Path) -> Space:
    """The file system that `path` is on. Raises OSError."""
    found = os.statvfs(path)
    return Space(
        total=found.f_blocks * found.f_frsize,
        free=found.f_bavail * found.f_frsize,
        inodes=found.f_favail if found.f_files else None,
        read_only=bool(found.f_flag & os.ST_RDONLY),
    )


def docker() -> Docker:
    """The engine of whoever asks. Raises EngineError where none answers."""
    return DockerEngine(None)


@dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        proc: procfs.
        sys: sysfs.
        shared_memory: the tmpfs that POSIX shared memory is in.
        space: the file system of a path; raises OSError.
        run: runs a program; raises OSError where there is none of that name.
        docker: opens the engine; raises EngineError.
        containers: the same engine's, to run something in; raises EngineError.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    shared_memory: Path = Path("/dev/shm")
    space: Callable[[Path], Space] = space
    run: Callable[[Sequence[str]], Done] = programs.run
    docker: Callable[[], Docker] = docker
    containers: Callable[[], collective_run.Containers] = Containers
