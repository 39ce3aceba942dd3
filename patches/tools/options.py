"""What the patch verbs have in common: which series, and its wheel."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from patches.engine.wheel import Wheel
from patches.tools import place, wheels
from releases.known import Known
from tools.cli.output import Output
from tools.files import lock

_WAIT_SECONDS = 60


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that choose a series and say where its steps are read."""
    parser.add_argument("--line", metavar="LINE", help="the line whose series is meant (default: the only series)")
    parser.add_argument("--series", metavar="NAME", help="the series, a folder of patches/, for example vllm-0.33.0")
    parser.add_argument(
        "--manifest",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="read steps from this manifest.json (bazel build //images/dsv41:manifest) and not from line.bzl",
    )


def chosen(options: argparse.Namespace) -> place.Place:
    """The series that the arguments choose. Raises UserError where there is none, or no source tree."""
    root = Known.find(options.tree).need_tree(options.prog)
    return place.find(root, options.line, options.series, options.manifest)


@contextmanager
def writing(where: place.Place, out: Output) -> Iterator[Wheel]:
    """The pinned wheel, with the series held for this process alone: another one that writes waits, and says so."""
    with wheels.pinned(where, out) as wheel, alone(where.folder, out):
        for draft in where.folder.glob(".*.partial"):
            draft.unlink()
        yield wheel


@contextmanager
def alone(folder: Path, out: Output) -> Iterator[None]:
    """Holds a folder against other writers of Moet's. Raises UserError that names one that does not end."""
    name = sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    with lock.exclusive(wheels.cache() / "locks" / f"{folder.name}.{name}", _WAIT_SECONDS, out.note):
        yield
