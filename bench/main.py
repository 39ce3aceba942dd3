"""Measures how fast images are assembled, built, changed and loaded, against what others do on the same content.

usage: bazel run //bench:images -- [--full | --layers NAME,...] [--only PART]... [--repeat N] [--json]
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import assembly, builds, machine, outcome, peers, plan, report
from bench.plan import Plan
from bench.programs import BenchError
from images.engine.errors import EngineError
from tests.engine import scratch
from tests.engine.engines import EngineUnavailableError

# About 2.7 GB of real wheels, among them files of a gigabyte and thousands of small ones.
_SUBSET = ("torch", "triton", "vllm")
_PARTS = ("assemble", "noop", "edit", "load")
# How often the content lies on the disk at once, at the worst. Assembling: the tree, and buildah's four copies
# of it, one compressed. Loading: Docker's unpacked layers beside the compressed ones, and the root file system.
_COPIES = {"assemble": 4.7, "load": 1.7}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(prog="images", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--plan", type=Path, required=True, help="what bench_plan wrote (bazel run gives it)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--full", action="store_true", help="assemble all of the image's layers of wheels")
    which.add_argument("--layers", help=f"assemble these, NAME,... (default: {','.join(_SUBSET)})")
    parser.add_argument("--only", action="append", choices=_PARTS, help="measure this part alone; may be repeated")
    parser.add_argument("--repeat", type=_count, default=3, help="runs of each, 1 or more (default: 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object to stdout; the tables go to stderr")
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)
    try:
        whole = plan.read(options.plan)
        names = [one.name for one in whole.layers] if options.full else (options.layers or ",".join(_SUBSET)).split(",")
        with scratch.folder(Path("/var/tmp")) as work:
            _Run(whole, whole.only(names), options.only or _PARTS, options.repeat, work).run(options.json)
    except (BenchError, EngineError, EngineUnavailableError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("images: interrupted; nothing is left behind", file=sys.stderr)
        return 130
    return 0


class _Run:
    """One run: `whole` is the image, `part` what is assembled of it, `parts` what is measured."""

    def __init__(self, whole: Plan, part: Plan, parts: Sequence[str], rounds: int, work: Path) -> None:
        self._whole, self._part, self._parts, self._rounds, self._work = whole, part, parts, rounds, work
        needed = self._check()
        self._space = builds.Workspace() if set(parts) - {"assemble"} else None
        root = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
        self._facts = {
            "machine": machine.describe(work),
            "versions": machine.versions(needed, Path(root) if root else None),
        }

    def run(self, as_json: bool) -> None:
        """Measure and print."""
        samples, measured = assembly.Samples(), builds.Builds()
        stderr = report.console(stderr=True)
        columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
            self._measure(samples, measured, _Steps(bar, stderr, self._steps()))
        wheels_bytes = sum(wheel.stat().st_size for wheel in self._part.wheels)
        content = {
            "layers": [layer.name for layer in self._part.layers],
            "wheels": len(self._part.wheels),
            "wheels_bytes": wheels_bytes,
            "files": samples.files,
            "unpacked_bytes": samples.unpacked_bytes,
        }
        rows, aims = outcome.build_rows(measured), outcome.build_aims(measured)
        if samples.ours:
            rows = outcome.assembly_rows(samples, peers.PEERS) + rows
            aims = outcome.assembly_aims(samples, peers.PEERS, wheels_bytes) + aims
        facts = {**self._facts, "content": content}
        report.show(stderr if as_json else report.console(stderr=False), facts, rows, aims)
        if as_json:
            print(json.dumps(report.document(facts, rows, aims, outcome.document(samples, measured)), indent=1))

    def _measure(self, samples: assembly.Samples, measured: builds.Builds, step: "_Steps") -> None:
        rounds, work, space = self._rounds, self._work, self._space
        if "assemble" in self._parts:
            assembly.compare(self._part, peers.PEERS, rounds, work, samples, step)
        if space and "noop" in self._parts:
            builds.noop(space, self._whole, rounds, measured, step)
        if space and "edit" in self._parts:
            builds.edits(space, self._whole, rounds, measured, step)
        if space and "load" in self._parts:
            builds.loads(space, self._whole, rounds, measured, work, step)

    def _steps(self) -> int:
        """How often something is measured."""
        rounds = self._rounds
        steps = {"assemble": rounds * (2 + len(peers.PEERS)), "noop": rounds, "edit": rounds, "load": 1 + rounds}
        return sum(steps[part] for part in self._parts)

    def _check(self) -> dict[str, str]:
        """Checks root and disk space; returns the programs that are needed, with their Debian packages."""
        engines = {"assemble", "load"} & set(self._parts)
        if engines and os.geteuid():
            raise BenchError("engines of its own need root; run as root, or with --only noop --only edit")
        for name in sorted(engines):
            content = self._part if name == "assemble" else self._whole
            unpacked = sum(layer.unpacked for layer in content.layers)
            machine.need_space(self._work, round(unpacked * _COPIES[name]), f"part {name}")
        needed = {"dockerd": "docker.io"} if engines else {}
        for way in peers.PEERS if "assemble" in engines else ():
            needed.update(way.programs)
        return needed


class _Steps:
    """Shows which measurement of how many runs: on the bar, or a line each where there is no terminal."""

    def __init__(self, bar: Progress, console: Console, total: int) -> None:
        self._bar, self._console, self._total, self._done = bar, console, total, 0
        self._task = bar.add_task("starting", total=total)

    def __call__(self, what: str) -> None:
        self._bar.update(self._task, description=what, completed=self._done)
        self._done += 1
        if not self._console.is_terminal:
            self._console.print(f"{self._done}/{self._total} {what}", highlight=False)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a whole number of 1 or more was expected")
    return int(text)


def _unwind(_signal: int, _frame: FrameType | None) -> None:
    sys.exit("images: stopped by a signal; nothing is left behind")


if __name__ == "__main__":
    sys.exit(main())
