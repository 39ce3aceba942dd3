"""moet experts build-store."""

import argparse
import random
from pathlib import Path

from serving.experts.storage import store
from serving.experts.storage.refusal import AlreadyCompleteError
from serving.experts.storage.wording import size
from tools.cli.output import Bar, Output
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.moet.verb import Verb

SCHEMA = "moet.experts-build-store.v1"
_CHECK = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="folder of an MXFP4 checkpoint")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder of the store")
    parser.add_argument(
        "--check",
        metavar="N",
        type=_number,
        default=_CHECK,
        help="random records to read again and compare with the checkpoint (default: %(default)s)",
    )
    parser.add_argument("--seed", metavar="N", type=_number, help="which records those are (default: others each time)")
    parser.add_argument("--workers", metavar="N", type=_positive, help="threads (default: one a CPU)")
    parser.add_argument("--replace", action="store_true", help="write in place of a finished store in DIR")
    parser.add_argument("--restart", action="store_true", help="throw away what an earlier run in DIR left")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    with Checkpoint.open(options.checkpoint) as checkpoint:
        header = store.header_of(checkpoint)
        with out.progress() as bar:
            bar.start(f"{options.out}", header.total * header.slot_bytes)
            built, text = _build(options, checkpoint, bar, header.slot_bytes)
        with out.progress() as bar:
            bar.start("compared with the checkpoint", min(options.check, header.total) * header.slot_bytes)
            compared = store.check(checkpoint, options.out, options.check, seed, bar.advance)
    out.line(text)
    out.line(f"{len(compared)} records compared with the checkpoint: the same (--seed {seed})")
    out.document(
        {
            "schema": SCHEMA,
            "out": str(options.out),
            "checkpoint": header.checkpoint,
            "content": None if built is None else built.content,
            "written": built is not None,
            "records": header.total,
            "resumed": 0 if built is None else built.resumed,
            "record_bytes": header.slot_bytes,
            "compared": compared,
            "seed": seed,
        }
    )
    return 0


def _build(
    options: argparse.Namespace, checkpoint: Checkpoint, bar: Bar, record: int
) -> tuple[store.Built | None, str]:
    """Builds the store; returns None where it was complete, and what to say."""
    before = 0

    def advance(done: int, _total: int) -> None:
        nonlocal before
        bar.advance((done - before) * record)
        before = done

    try:
        built = store.build(checkpoint, options.out, advance, options.workers, options.replace, options.restart)
    except AlreadyCompleteError as error:
        return None, str(error)
    resumed = f", {built.resumed:,} of them by an earlier run" if built.resumed else ""
    return built, f"{options.out}: {built.records:,} records of {size(record)}{resumed}; content {built.content}"


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number, 0 or more")
    return int(text)


def _positive(text: str) -> int:
    if (value := _number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return value


VERB = Verb(
    summary="write the MXFP4 experts of a checkpoint as the store that the CPU tier reads",
    description="""One record an expert, in the CPU tier's layout: the checkpoint's bytes in another order. Memory:
about three records a thread. Stopped, at whatever point, the same command goes on; the store appears in one stroke when
it is complete, and the same checkpoint always gives the same bytes. Afterwards --check reads records again and compares
them with the checkpoint.

The size of the store is experts times layers times the record (3 x hidden x intermediate x 17/32 bytes): 268.95 GiB for
DeepSeek-V4.1-Flash. docs/format-store.md specifies it.""",
    arguments=add_arguments,
    run=run,
    examples=(("experts build-store /models/DeepSeek-V4.1-Flash --out /srv/experts --check 64", "build and compare"),),
)
