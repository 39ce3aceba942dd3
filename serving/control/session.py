"""One command's hold on one server: its lock, its state, its engine."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from images.engine.docker_engine import DockerEngine
from releases.known import Known
from serving.containers.containers import Containers
from serving.control.ground import Ground
from serving.control.sequence import Sequence
from serving.control.starter import Starter
from serving.generations import saved_logs, store
from serving.generations.generation import now
from serving.generations.server import Server
from serving.launch import key
from serving.launch.launch import Launch
from serving.preflight.host import Host
from serving.profiles import load
from serving.profiles.model import Profile
from tools.cli.output import Output


class Journal:
    """The state of a server in its folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def read(self) -> Server:
        """The state. Raises UserError where it cannot be read."""
        return store.read(self._name)

    def write(self, server: Server) -> None:
        """Puts a state in its place. Raises OSError."""
        store.write(server)

    def save_log(self, generation: int, why: str, text: str) -> str:
        """Keeps a server's last output; returns the file. Raises OSError."""
        return str(saved_logs.save(self._name, generation, now(), why, text))


@dataclass(frozen=True)
class Session:
    """What a command works with.

    Attributes:
        containers: the engine.
        sequence: the changes, and the state.
        starter: readiness.
        known: releases.
        host: that is looked at before a start.
        environment: with the API key, where it is there.
        out: where results go.
    """

    containers: Containers
    sequence: Sequence
    starter: Starter
    known: Known
    host: Host
    environment: Mapping[str, str]
    out: Output

    @property
    def server(self) -> Server:
        """The state as it is now."""
        return self.sequence.server

    def profile(self, line: str) -> Profile:
        """The profile of a line. Raises UserError."""
        return load.load(line, self.known.root)


@contextmanager
def changing(
    name: str, address: str | None, known: Known, out: Output, environment: Mapping[str, str] = os.environ
) -> Iterator[Session]:
    """Holds a server's lock while it is changed.

    Raises UserError where another process is at it, the state cannot be read, or no engine answers at `address`.
    """
    with store.locked(name, out.note), looking(name, address, known, out, environment) as session:
        yield session


@contextmanager
def looking(
    name: str, address: str | None, known: Known, out: Output, environment: Mapping[str, str] = os.environ
) -> Iterator[Session]:
    """Opens a server without its lock: its state may change meanwhile. Raises UserError as changing() does."""

    def secret(launch: Launch) -> str | None:
        return key.secret(launch.key, environment)

    host = Host(docker=lambda: DockerEngine(address), containers=lambda: Containers(address))
    starter = Starter(lambda line: load.load(line, known.root), host, out)
    containers = Containers(address)
    try:
        sequence = Sequence(Ground(containers, starter, Journal(name), secret, out))
        yield Session(containers, sequence, starter, known, host, environment, out)
    finally:
        containers.close()
