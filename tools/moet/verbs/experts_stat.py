"""moet experts stat."""

import argparse
from pathlib import Path

from serving.experts.storage import survey, wording
from tools.cli.output import Output
from tools.moet.verb import Verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("path", metavar="DIR", type=Path, help="folder of a pack or store: it holds experts.json")
    parser.add_argument("--verify", action="store_true", help="read every record and compare its checksum")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    with out.progress() as bar:
        seen = 0

        def advance(done: int, total: int) -> None:
            nonlocal seen
            if not seen:
                bar.start("checksums", total)
            bar.advance(done - seen)
            seen = done

        found = survey.survey(options.path, options.verify, advance)
    out.document(wording.document(found))
    wording.show(found, out)
    return 3 if found.damaged or found.unreadable or found.header is None else 0


VERB = Verb(
    summary="show what a pack or store of experts holds, and whether it is whole",
    description="""Kind, checkpoint, geometry, records and size of a container of experts: a 2-bit pack, or the MXFP4
store of the hybrid. Opening it checks version, sizes, and that sidecar and records belong together; with --verify each
record is read, past the page cache where that can be had, and held against its checksum.

Also which ways of reading this machine and the container's file system have: O_DIRECT, io_uring (containers often
forbid it by seccomp: then threads read), page-locked memory.""",
    arguments=add_arguments,
    run=run,
    examples=(
        ("experts stat /srv/experts", "what it holds"),
        ("experts stat /srv/experts --verify", "whether all of its bytes are those that were written"),
    ),
    exits=(
        (3, "records are damaged or unreadable, or there is only the draft of a container; lines on stdout say so"),
    ),
)
