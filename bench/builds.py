"""Bazel in the workspace that the benchmark was started from: a no-op, an edit to a layout, an edit to an engine."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import edit, meter, peers, programs
from bench.meter import Cost
from bench.plan import Plan
from bench.programs import BenchError
from images.engine import layout
from images.engine.layout import Image
from tests.engine import engines, scratch

# Bazel's exit status where another command has the output base and it was told not to wait.
_LOCK_HELD = 9


class Workspace:
    """The workspace and the output base of the `bazel run` that started this program.

    Raises:
        BenchError: this program was not started by `bazel run`.
    """

    def __init__(self) -> None:
        root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
        if not root:
            raise BenchError("builds can be measured from `bazel run` alone; start it with: bazel run //bench:images")
        self.root = Path(root)
        output_base, inside, _ = os.path.abspath(sys.argv[0]).partition("/execroot/")
        self._bazel = [os.environ.get("BAZEL", "bazel"), *([f"--output_base={output_base}"] if inside else [])]
        self._server = int(self._run(["info", "server_pid"]))
        self._bin = Path(self._run(["info", "bazel-bin"]).strip())

    @property
    def daemons(self) -> list[int]:
        """The process id of Bazel's server."""
        return [self._server]

    def build(self, target: str, wait: bool = False) -> None:
        """Builds a target; `wait` for a command that runs already, which what is measured must not."""
        self._run(["build", target], wait)

    def load(self, target: str, host: str) -> dict[str, Any]:
        """Runs an image's load command against the engine at `host` and returns its report."""
        report: dict[str, Any] = json.loads(self._run(["run", target, "--", "--host", host, "--json"]))
        return report

    def image(self, plan: Plan) -> Image:
        """The plan's image, as it was built last."""
        return layout.read(self._bin / plan.layout)

    def _run(self, arguments: list[str], wait: bool = False) -> str:
        block = "--block_for_lock" if wait else "--noblock_for_lock"
        done = programs.call([*self._bazel, block, *arguments], programs.environment(), self.root)
        if done.returncode == _LOCK_HELD:
            raise BenchError("another Bazel command is running here; measure when the machine has nothing else to do")
        if done.returncode:
            raise BenchError(f"bazel {' '.join(arguments[:2])} failed: {programs.last_line(done)}")
        return done.stdout


@dataclass
class Loaded:
    """One load into an engine: its cost, bytes sent and layers sent."""

    cost: Cost
    bytes_sent: int
    layers_sent: int


@dataclass
class Builds:
    """What was measured of Bazel's builds; a list has an item a run."""

    image_bytes: int = 0
    noop: list[Cost] = field(default_factory=list)
    edit: list[Cost] = field(default_factory=list)
    whole: list[Loaded] = field(default_factory=list)
    edit_loaded: list[Loaded] = field(default_factory=list)


def noop(space: Workspace, plan: Plan, rounds: int, result: Builds, progress: Callable[[str], None]) -> None:
    """Measure builds of an image that is built already."""
    space.build(plan.image, wait=True)
    result.image_bytes = _bytes(space.image(plan))
    for _ in range(rounds):
        progress(f"bazel build {plan.image}, nothing to do")
        result.noop.append(meter.measure(lambda: space.build(plan.image), space.daemons))


def edits(space: Workspace, plan: Plan, rounds: int, result: Builds, progress: Callable[[str], None]) -> None:
    """Measure builds after an edit of one line of one patch, which is undone and built back at the end."""
    with _edited(space, plan, result) as change:
        for turn in range(rounds):
            progress("one line of a patch to a new layout")
            change.apply(f"(layout {turn})")
            result.edit.append(meter.measure(lambda: space.build(plan.image), space.daemons))


def loads(
    space: Workspace, plan: Plan, rounds: int, result: Builds, work: Path, progress: Callable[[str], None]
) -> None:
    """Measure the load of the whole image into an engine that has nothing, then of edited ones into the same."""
    with _edited(space, plan, result) as change, scratch.folder(work) as data, engines.private_dockerd(data) as engine:
        daemons = [*space.daemons, peers.engine_pid(engine)]
        progress("the whole image into an empty engine")
        result.whole.append(_load(space, plan, engine.host, daemons))
        for turn in range(rounds):
            progress("one line of a patch to the engine")
            change.apply(f"(engine {turn})")
            result.edit_loaded.append(_load(space, plan, engine.host, daemons))


def _load(space: Workspace, plan: Plan, host: str, daemons: list[int]) -> Loaded:
    reports = []
    cost = meter.measure(lambda: reports.append(space.load(plan.loader, host)), daemons)
    return Loaded(cost, reports[0]["bytes_sent"], reports[0]["layers_sent"])


@contextmanager
def _edited(space: Workspace, plan: Plan, result: Builds) -> Iterator[edit.Edit]:
    """An Edit over a built image; at the end the image is built back and must be the one it was."""
    with edit.undone(space.root, plan.patches) as change:
        space.build(plan.image, wait=True)
        before = space.image(plan)
        result.image_bytes = _bytes(before)
        try:
            yield change
            if space.image(plan).manifest.digest == before.manifest.digest:
                raise BenchError(f"an edit of {change.patch} did not change the image: nothing was measured")
        finally:
            change.undo()
            space.build(plan.image, wait=True)
    after = space.image(plan).manifest.digest
    if after != before.manifest.digest:
        raise BenchError(f"the image is {after} after the edit was undone, and was {before.manifest.digest}")


def _bytes(image: Image) -> int:
    """Bytes of an image's layers as stored."""
    return sum(one.blob.size for one in image.layers)
