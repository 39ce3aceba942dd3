"""Load an image of an OCI layout into a container engine, sending only the layers that it lacks."""

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from images.engine import layout, reference
from images.engine.docker_engine import DockerEngine
from images.engine.errors import EngineError
from images.engine.podman_engine import PodmanEngine


class _Bar:
    """A rich progress bar of one phase at a time, on stderr."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, what: str, total: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=total or None)

    def advance(self, amount: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, amount)


def open_engine(kind: str | None, host: str | None) -> DockerEngine | PodmanEngine:
    """The engine to load into: the one asked for, else Docker where it answers, else podman.

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


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help="directory of the OCI image layout")
    parser.add_argument("--ref", required=True, help="the image's name in the layout, NAME:TAG")
    parser.add_argument("--name", help="the name it gets in the engine (default: --ref)")
    parser.add_argument("--engine", choices=("docker", "podman"), help="default: Docker where it answers, else podman")
    parser.add_argument(
        "--host", help="Docker's address, unix:///PATH or tcp://HOST:PORT (default: DOCKER_HOST, else the context)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    bar = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    columns = (TextColumn("{task.description}"), *bar)
    start = time.monotonic()
    try:
        name = reference.parse(options.name or options.ref)
        image = layout.read(options.layout, options.ref)
        engine = open_engine(options.engine, options.host)
        try:
            with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
                result = engine.load(image, name, _Bar(progress))
        finally:
            engine.close()
    except EngineError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("load: interrupted", file=sys.stderr)
        return 130
    seconds = time.monotonic() - start
    print(json.dumps(result.document(seconds)) if options.json else "\n".join(result.lines(seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
