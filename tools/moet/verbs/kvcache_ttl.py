"""moet kvcache ttl."""

import argparse
import math
import time
from pathlib import Path

from serving.kvcache import tier, ttl, wording
from tools.cli.output import Output
from tools.moet.verb import Verb

_GB = 10**9


def positive(word: str) -> float:
    """A finite number above 0. Raises argparse.ArgumentTypeError."""
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{word!r}: expected a number above 0")
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the tier's folder")
    parser.add_argument(
        "--hours",
        type=positive,
        default=72.0,
        metavar="H",
        help="delete blocks that were not used for H hours (default: 72)",
    )
    parser.add_argument(
        "--max-gb",
        type=positive,
        default=200.0,
        metavar="GB",
        help="with more than GB of blocks (1 GB is 10^9 bytes), delete the longest unused until 90 %% of GB stay "
        "(default: 200)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted, and delete nothing")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    limits = ttl.Limits(options.hours, int(options.max_gb * _GB))
    with tier.opened(options.directory) as opened:
        if note := wording.note_access_times(opened.access_times, limits.hours):
            out.note(note)
        with out.progress() as bar:
            done = ttl.sweep(opened, limits, time.time(), bar, options.dry_run)
        out.document(done.document(opened))
        out.line(wording.summary(opened, done))
        wording.show_faults(opened.faults, out)
        return 3 if opened.faults.count else 0


VERB = Verb(
    summary="delete blocks that the engine has not used for long, or what is over a cap, from a KV disk tier",
    description="""Keeps a KV disk tier, which vLLM itself only adds to, from filling its disk. Run it every hour or so;
the engine may work meanwhile. A request that had just been promised a deleted block computes it, and vLLM logs "block
I/O failed: No such file or directory" once: nothing is retried, and nothing wrong is read.

Blocks go by last use: the later one of access and modification time. A mount with relatime notes a read once a day; one
with noatime never, and then age counts from the writing. Over the cap, the longest unused go until 90 % of it stay.
Temporary files go when they are an hour old: their writer is dead.

DIR is the folder that KV_OFFLOAD_FS_DIR names, with one folder in it for each format, or the root_dir of one engine's
tier; the cap is for all of it. Only files that are named and placed as vLLM 0.33.0 does it are deleted, below folders
whose config.json proves that they are vLLM's. No link is followed, and no other file system entered. Folders stay: the
engine uses them again.""",
    arguments=add_arguments,
    run=run,
    examples=(
        ("kvcache ttl /srv/kv --dry-run", "what would go"),
        ("kvcache ttl /srv/kv --hours 168 --max-gb 500", "a week, and half a terabyte"),
    ),
    exits=((3, "something could not be read or deleted; lines on stderr say what"),),
)
