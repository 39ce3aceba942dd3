"""moet plan kv."""

import argparse
import math
import os
from pathlib import Path

from releases.known import Known
from serving.launch import request, settings
from serving.plan import measured, wording
from serving.plan.plan import plan
from serving.profiles import load
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    request.add_arguments(parser)
    parser.add_argument(
        "--card-gib", type=_size, metavar="GIB", help="memory of a GPU as CUDA counts it (default: 94.97, RTX PRO 6000)"
    )
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--available-gib", type=_size, metavar="GIB", help="memory of a GPU left for the KV cache")
    given.add_argument("--log", type=Path, metavar="FILE", help="a server's log: its figures, not the published ones")
    parser.add_argument("--explain", action="store_true", help="what each figure is made of, and what others measured")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    profile = load.load(options.profile, Known.find(options.tree).root)
    asked = settings.resolve(profile, options.given, os.environ)
    log = None
    if options.log is not None:
        with options.log.open(encoding="utf-8", errors="replace") as lines:
            log = measured.read(lines, str(options.log))
    available = options.available_gib
    if log is not None and log.consumed is None:
        available = log.available
    found = plan(asked, options.card_gib, available, log)
    wording.show(found, log, options.explain, out)
    out.document(wording.document(found, log))
    return 0 if found.chosen.starts else 1


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 0 < size < 10_000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected GiB, more than 0 and less than 10000")
    return size


VERB = Verb(
    summary="how many tokens the KV cache of a server will hold, and why, before it is started",
    description="""Takes what `moet serve up` takes. Nothing is started, and no GPU is needed.

Memory goes from the whole of a card to what is left for the KV cache; vLLM's own layout of blocks, and its way of
counting, go from there to tokens and to requests of the longest context at once. All pairs of formats of records and
index keys are shown, those that the profile refuses too; -> is what the settings ask for.

The blocks are exact. The memory is not: weights are reckoned by shapes, and the rest is what others measured on RTX PRO
6000, with the range of their starts. --log takes the figures of a server of yours, which its log states, and holds the
tokens that it states against what is reckoned.

Exit status 1: not one request of MAX_MODEL_LEN would fit; vLLM would refuse to start.""",
    arguments=arguments,
    run=run,
    examples=(
        ("plan kv dsv41", "as the profile has it"),
        ("plan kv dsv41 --set INDEXER_KV_DTYPE=mxfp4 --explain", "what each figure is made of"),
        ("plan kv dsv41 --log server.log", "with a server's own figures"),
        ("plan kv dsv41 --set TP=8 --set MAX_MODEL_LEN=1048576 --available-gib 18.9", "from the memory that is left"),
    ),
)
