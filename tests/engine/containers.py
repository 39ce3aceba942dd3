"""Running programs in containers of one image, in Docker and in podman."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import docker
import requests.exceptions

from tests.engine.engines import Podman


@dataclass(frozen=True)
class Outcome:
    """How a program in a container ended. `seconds` is its wall time with the container's start and end."""

    status: int
    output: str
    errors: str
    seconds: float

    def json(self) -> Any:
        """The whole output as JSON."""
        return json.loads(self.output)

    def document(self) -> dict[str, Any]:
        """The JSON object on the last line of the output; fails with the end of the errors where there is none."""
        assert self.status == 0, f"status {self.status}: {self.tail()}"
        return cast(dict[str, Any], json.loads(self.output.strip().splitlines()[-1]))

    def tail(self, lines: int = 40) -> str:
        """The end of what the program said."""
        return "\n".join([*self.output.splitlines()[-lines:], *self.errors.splitlines()[-lines:]])


@dataclass(frozen=True)
class Container:
    """How to run a program.

    Attributes:
        command: the program's arguments; after the image's entry point where `entrypoint` is None.
        entrypoint: what runs instead of the image's entry point.
        mounts: read-only mounts, a path in the container to a path here.
        shared: the same, writable.
        environment: variables beside the image's own.
        folder: the working folder, where it is not the image's.
        user: `uid:gid`, where it is not the image's.
        hardened: with a read-only root, no capabilities, and an executable /tmp in memory.
        seconds: when to give up.
    """

    command: Sequence[str]
    entrypoint: str | None = None
    mounts: Mapping[str, Path] = field(default_factory=dict)
    shared: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    user: str | None = None
    hardened: bool = False
    seconds: int = 1800


class Runner(Protocol):
    """Whoever runs containers of an image."""

    def run(self, container: Container) -> Outcome:
        """Run to the end, without a network, and remove the container."""


_TMPFS = "exec,mode=1777,size=4g"


@dataclass(frozen=True)
class DockerRunner:
    """Runs containers of `image` through Docker's API."""

    client: docker.DockerClient
    image: str

    def run(self, container: Container) -> Outcome:
        """Run to the end, without a network, and remove the container."""
        volumes = [f"{source}:{target}:ro" for target, source in container.mounts.items()]
        volumes += [f"{source}:{target}" for target, source in container.shared.items()]
        start = time.monotonic()
        running = self.client.containers.create(
            self.image,
            list(container.command),
            entrypoint=[container.entrypoint] if container.entrypoint else None,
            environment=dict(container.environment),
            volumes=volumes,
            network_mode="none",
            working_dir=container.folder,
            user=container.user,
            read_only=container.hardened,
            cap_drop=["ALL"] if container.hardened else None,
            tmpfs={"/tmp": _TMPFS} if container.hardened else None,
        )
        try:
            running.start()
            try:
                status = running.wait(timeout=container.seconds)["StatusCode"]
            except requests.exceptions.RequestException as error:
                raise TimeoutError(f"{list(container.command)}: still running after {container.seconds} s") from error
            output = running.logs(stdout=True, stderr=False).decode(errors="replace")
            errors = running.logs(stdout=False, stderr=True).decode(errors="replace")
        finally:
            running.remove(force=True, v=True)
        return Outcome(status, output, errors, time.monotonic() - start)


@dataclass(frozen=True)
class PodmanRunner:
    """Runs containers of `image` through podman's command."""

    podman: Podman
    image: str

    def run(self, container: Container) -> Outcome:
        """Run to the end, without a network, and remove the container."""
        options = ["--rm", "--network", "none"]
        options += [f"--volume={source}:{target}:ro" for target, source in container.mounts.items()]
        options += [f"--volume={source}:{target}" for target, source in container.shared.items()]
        options += [f"--env={name}={value}" for name, value in container.environment.items()]
        options += [f"--entrypoint={container.entrypoint}"] if container.entrypoint else []
        options += [f"--workdir={container.folder}"] if container.folder else []
        options += [f"--user={container.user}"] if container.user else []
        options += ["--read-only", "--cap-drop=ALL", f"--tmpfs=/tmp:{_TMPFS}"] if container.hardened else []
        start = time.monotonic()
        try:
            done = self.podman("run", *options, self.image, *container.command, timeout=container.seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{list(container.command)}: still running after {container.seconds} s") from error
        return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - start)
