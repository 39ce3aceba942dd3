"""Choosing the engine."""

import argparse

from images.engine.docker_engine import DockerEngine
from images.engine.errors import EngineError
from images.engine.podman_engine import PodmanEngine


def open_engine(kind: str | None, host: str | None) -> DockerEngine | PodmanEngine:
    """The engine to work with: the one asked for, else Docker where it answers, else podman.

    Raises:
        EngineError: none can be used; the message says what was tried.
    """
    if kind == "podman" and host:
        raise EngineError(
            "--host is for --engine docker (podman's service answers there too), podman itself takes none"
        )
    tried: list[str] = []
    if kind != "podman":
        try:
            return DockerEngine(host)
        except EngineError as error:
            tried.append(str(error))
    if kind != "docker" and not host:
        try:
            return PodmanEngine()
        except EngineError as error:
            tried.append(str(error))
    advice = (
        "start Docker or install podman (Debian: apt-get install podman), or name a socket with --host unix:///PATH"
    )
    raise EngineError(f"{'; '.join(tried)}; {advice}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --engine and --host, which choose the engine, to a command line."""
    parser.add_argument("--engine", choices=("docker", "podman"), help="default: Docker where it answers, else podman")
    parser.add_argument(
        "--host", help="Docker's address, unix:///PATH or tcp://HOST:PORT (default: DOCKER_HOST, else the context)"
    )
