"""Measures how fast images are assembled, built, changed and loaded, against what others do on the same content.

usage: bazel run //bench:images -- [--full | --layers NAME,...] [--only NAME]... [--repeat N] [--json]
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import assembly, builds, machine, outcome, peers, plan, programs, report
from bench.plan import Plan
from bench.programs import BenchError
from images.engine.errors import EngineError
from tests.engine import scratch
from tests.engine.engines import EngineUnavailableError

# About 2.7 GB of real wheels, among them files of a gigabyte and thousands of small ones.
_SUBSET = ("torch", "triton", "vllm")
_PARTS = ("assemble", "noop", "edit", "load")
# How often the content lies on the disk at once, at the worst: Docker's copy of the context and its layer
# beside the tree. A load holds the compressed layers beside the unpacked ones, which are under a third.
_COPIES = {"assemble": 3.5, "load": 1.7}


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
    try:
        whole = plan.read(options.plan)
        names = [one.name for one in whole.layers] if options.full else (options.layers or ",".join(_SUBSET)).split(",")
        with scratch.folder(Path("/var/tmp")) as work:
            _measure(whole, whole.only(names), tuple(options.only or _PARTS), options.repeat, options.json, work)
    except (BenchError, EngineError, EngineUnavailableError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


def _measure(whole: Plan, part: Plan, parts: Sequence[str], rounds: int, as_json: bool, work: Path) -> None:
    sizes = {"assemble": part, "load": whole}
    for name, content in sizes.items():
        if name in parts:
            unpacked = sum(layer.unpacked for layer in content.layers)
            machine.need_space(work, round(unpacked * _COPIES[name]), name)
    for way in peers.PEERS:
        for program, package in way.packages:
            programs.find(program, package)
    space = builds.Workspace() if set(parts) - {"assemble"} else None
    facts = {
        "machine": machine.describe(work),
        "versions": machine.versions(space.root if space else None),
        "content": {
            "layers": [layer.name for layer in part.layers],
            "wheels": len(part.wheels),
            "wheels_bytes": sum(wheel.stat().st_size for wheel in part.wheels),
        },
    }
    samples, measured = assembly.Samples(), builds.Builds()
    stderr = Console(stderr=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        steps = {"assemble": rounds * (2 + len(peers.PEERS)), "noop": rounds, "edit": rounds, "load": 1 + rounds}
        task = bar.add_task("starting", total=sum(steps[name] for name in parts))
        started = iter(range(sum(steps.values())))

        def progress(what: str) -> None:
            bar.update(task, description=what, completed=next(started))

        if "assemble" in parts:
            samples = assembly.compare(part, peers.PEERS, rounds, work, progress)
        if space and "noop" in parts:
            builds.noop(space, whole, rounds, measured, progress)
        if space and "edit" in parts:
            builds.edits(space, whole, rounds, measured, progress)
        if space and "load" in parts:
            builds.loads(space, whole, rounds, measured, work, progress)

    facts["content"].update(files=samples.files, unpacked_bytes=samples.unpacked_bytes)
    rows, aims = outcome.build_rows(measured), outcome.build_aims(measured)
    if samples.ours:
        rows = outcome.assembly_rows(samples, peers.PEERS) + rows
        aims = outcome.assembly_aims(samples, peers.PEERS, facts["content"]["wheels_bytes"]) + aims
    report.show(stderr if as_json else Console(), facts, rows, aims)
    if as_json:
        print(json.dumps(report.document(facts, rows, aims, outcome.document(samples, measured)), indent=1))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: a whole number of 1 or more was expected")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
