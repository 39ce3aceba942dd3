"""Engines and a registry of a test's own: started, waited for, stopped, and nothing of them left.

They need root and Debian's docker.io, podman, runc, skopeo and docker-registry; a missing one fails the test with a
line that names it.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import docker
import requests
from docker.errors import DockerException

from tests.engine import scratch
from tests.engine.ports import free_port

_START_SECONDS = 180
_T = TypeVar("_T")
# Bazel gives tests a PATH without the folders where engines and their helpers lie.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class EngineUnavailableError(Exception):
    """A test cannot have its engine here; the message says what to install or change."""


class Daemon:
    """A process that can be stopped and started again."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        self._command, self._environment = command, environment
        self._running = ExitStack()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it; its log begins anew."""
        running = scratch.process(self._command, self.log, self._environment)
        self.process = self._running.enter_context(running)
        return self.process

    def stop(self) -> None:
        """Ends it, and waits; nothing where it does not run."""
        self._running.close()


@dataclass(frozen=True)
class Dockerd:
    """A private dockerd: its address, a client of it, where its data lies, and its process."""

    host: str
    client: docker.DockerClient
    data: Path
    runtime: Path
    daemon: Daemon

    def restart(self) -> None:
        """Stops it, which stops its containers, and starts it again at the same address."""
        self.daemon.stop()
        self.start()

    def start(self) -> None:
        """Starts it, and waits for it to answer. Raises EngineUnavailableError."""
        _wait("dockerd", self.client.ping, self.daemon.start(), self.daemon.log)


@dataclass(frozen=True)
class Podman:
    """A podman with storage of its own: the environment that selects it, where its data lies, and a short path."""

    environment: dict[str, str]
    data: Path
    runtime: Path

    def __call__(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run `podman ARGUMENTS` and return its outcome."""
        environment = {**os.environ, "PATH": PATH, **self.environment}
        return subprocess.run(
            ["podman", *arguments], env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )


@contextmanager
def private_dockerd(
    data_root: Path | None = None, network: Sequence[str] = ("--bridge=none",), path: str = PATH
) -> Iterator[Dockerd]:
    """A dockerd without networks on a socket of its own.

    Its data root is new and is removed at the end; a `data_root` that is given is left to its owner. `network` are
    the options for another network, `path` is where it finds programs.

    Raises:
        EngineUnavailableError: no root, no dockerd, or it did not start; the message ends with its log.
    """
    _need("dockerd", "docker.io")
    with scratch.folder() as runtime, scratch.folder(scratch.roomy()) as own:
        data = data_root or own / "data"
        host = f"unix://{runtime}/docker.sock"
        log = runtime / "log"
        command = ["dockerd", *network, "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        command += ["--storage-driver=overlay2", f"--data-root={data}", f"--exec-root={runtime}/exec"]
        command += [f"--host={host}", f"--pidfile={runtime}/pid", f"--config-file={runtime}/daemon.json"]
        (runtime / "daemon.json").write_text("{}")
        (runtime / "tmp").mkdir()
        daemon = Daemon(command, log, {"PATH": path})
        try:
            running = daemon.start()
            client = _wait("dockerd", lambda: docker.DockerClient(base_url=host, timeout=1800), running, log)
            try:
                yield Dockerd(host, client, data, runtime, daemon)
            finally:
                _clear(client)
                client.close()
        finally:
            daemon.stop()
        scratch.unmount_below(data)


def _clear(client: docker.DockerClient) -> None:
    """Removes containers and networks, as far as the engine still answers: a network's bridge outlives the engine."""
    with suppress(DockerException, requests.RequestException):
        for container in client.containers.list(all=True):
            container.remove(force=True)
        client.networks.prune()


@contextmanager
def private_podman() -> Iterator[Podman]:
    """A podman whose storage, state and settings lie in folders of its own.

    Raises:
        EngineUnavailableError: no root, no podman or no runc.
    """
    _need("podman", "podman")
    _need("runc", "runc")
    with scratch.folder() as runtime, scratch.folder(scratch.roomy()) as data:
        (runtime / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{data}/graph"\nrunroot = "{runtime}/run"\n'
        )
        # crun fails under hybrid cgroups and the default limits exceed a container host's own.
        (runtime / "containers.conf").write_text(
            '[containers]\nnetns = "none"\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'tmp_dir = "{runtime}/tmp"\nstatic_dir = "{data}/static"\nvolume_path = "{data}/volumes"\n'
        )
        podman = Podman(
            {
                "CONTAINERS_STORAGE_CONF": f"{runtime}/storage.conf",
                "CONTAINERS_CONF": f"{runtime}/containers.conf",
                "TMPDIR": str(data),
            },
            data,
            runtime,
        )
        try:
            yield podman
        finally:
            podman("rm", "--all", "--force", "--time", "0")


@contextmanager
def loopback_registry(closed: bool = False) -> Iterator[str]:
    """A registry on a free loopback port; yields HOST:PORT. `closed` makes it refuse everyone who logs in.

    Raises:
        EngineUnavailableError: no docker-registry, or it did not start; the message ends with its log.
    """
    _need("docker-registry", "docker-registry")
    with scratch.folder(scratch.roomy()) as data:
        address = f"127.0.0.1:{free_port()}"
        config = f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {data}/blobs}}}}\n"
        config += f"http: {{addr: '{address}'}}\n"
        if closed:
            (data / "nobody").touch()
            config += f"auth: {{htpasswd: {{realm: closed, path: {data}/nobody}}}}\n"
        (data / "config.yml").write_text(config)
        log = data / "log"
        with scratch.process(["docker-registry", "serve", str(data / "config.yml")], log) as running:
            session = requests.Session()
            session.trust_env = False
            _wait("docker-registry", lambda: session.get(f"http://{address}/v2/", timeout=5), running, log)
            yield address


def _need(program: str, package: str) -> None:
    if os.geteuid():
        raise EngineUnavailableError(f"{program} of a test's own needs root; run the tests as root")
    if not shutil.which(program, path=PATH):
        raise EngineUnavailableError(f"{program} is not installed; apt-get install {package}")


def _wait(name: str, ask: Callable[[], _T], running: subprocess.Popen[bytes], log: Path) -> _T:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return ask()
        except (DockerException, OSError):
            if running.poll() is not None or time.monotonic() > deadline:
                tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
                raise EngineUnavailableError(f"{name} did not start: {tail}") from None
            time.sleep(0.1)
