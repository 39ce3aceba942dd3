"""moet experts quantize."""

import argparse
import time
from pathlib import Path

from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.experts.checkpoint.checkpoint import Checkpoint
from tools.experts.quantize import facts, options, report, wording
from tools.experts.quantize.counted import ByExpert
from tools.experts.quantize.run import buffer_bytes, cores, run
from tools.files import atomic
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="folder with config.json and safetensors")
    parser.add_argument("pack", type=Path, metavar="PACK", help="folder of the pack that is written")
    parser.add_argument("--layers", type=options.layers, metavar="N", help="only these layers, such as 3,5-7")
    parser.add_argument("--delta", choices=facts.DELTAS, help="write what gives the 4-bit weights back, too")
    parser.add_argument("--delta-out", type=Path, metavar="DIR", help="the delta's folder (default: PACK-DELTA)")
    parser.add_argument(
        "--zero-mode", choices=facts.ZERO_MODES, default="auto", help="which sign a zero weight takes (default: auto)"
    )
    parser.add_argument("--threads", type=options.count, metavar="N", help="default: all cores")
    parser.add_argument("--tag", default="", metavar="TEXT", help="a line for people, kept in the pack")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report on every tensor as JSON")
    parser.add_argument("--replace", action="store_true", help="replace the pack that is there")
    parser.add_argument("--restart", action="store_true", help="throw away what a stopped run has done")


def quantize(asked: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    with Checkpoint.open(asked.checkpoint, asked.layers) as checkpoint, out.progress() as bar:
        threads = asked.threads or cores()
        out.note(
            f"{checkpoint.scheme}, {len(checkpoint.layers)} layers x {checkpoint.experts} experts, {threads} threads,"
            f" {wording.size(buffer_bytes(checkpoint, asked.delta, threads))} of buffers at most"
        )
        bar.start("quantize", len(checkpoint.layers) * checkpoint.experts * checkpoint.expert_bytes)
        begun = time.monotonic()

        def keep(found: report.Report, counts: ByExpert) -> None:
            if asked.report is not None:
                _write(asked.report, report.file(found, counts))

        result = run(
            checkpoint,
            asked.pack,
            delta=asked.delta,
            delta_path=asked.delta_out,
            zero_mode=asked.zero_mode,
            threads=threads,
            replace=asked.replace,
            restart=asked.restart,
            tag=asked.tag,
            advance=bar.advance,
            reported=keep,
        )
        seconds = time.monotonic() - begun
    wording.show_result(result, asked.pack, seconds, out)
    out.document(wording.result_document(result, asked.pack, seconds))
    return 0 if result.report.passes else 3


def _write(path: Path, data: bytes) -> None:
    try:
        atomic.write(path, data)
    except OSError as error:
        raise UserError(
            f"{path}: the report cannot be written ({error.strerror}); name another file, and run the same command"
            " again: what was quantized is kept"
        ) from None


VERB = Verb(
    summary="the routed experts of a checkpoint to a pack of 2-bit planes",
    description="""Reads experts in MXFP4, NVFP4 or FP8 with blocks of 128 x 128 from safetensors, and writes the pack
that docs/format-2bit.md describes. An expert at a time for each thread: the memory that all hold is printed first.

A run that was stopped, killed too, goes on where it was when the same command is given again; the result is the same,
byte for byte. Without a finished run there is no pack, only a draft.

A weight's 2-bit code has no zero. --zero-mode says which of -1 and 1 a zero takes: sign that of its sign bit, alt 1 in
even and -1 in odd columns, auto alt where less than one in twenty zeros of a tensor has the rarer sign, and else sign.
--delta writes a second pack with what is missing to the 4-bit weights: quintal 2.5 bits a weight, fp4 all four.

The report holds the levels -4 -1 1 4 against the best four of each tensor. Its gate says whether two bits may be used
for this model; the pack is written either way.""",
    arguments=arguments,
    run=quantize,
    examples=(
        ("experts quantize /models/GLM-5.2-NVFP4 /packs/glm", "the whole model"),
        ("experts quantize /models/GLM-5.2-NVFP4 /packs/glm --delta quintal", "and what gives its 4 bits back"),
        (
            "experts quantize /models/GLM-5.2-NVFP4 /tmp/glm --layers 3,40,77 --report glm.json",
            "a look at three layers",
        ),
    ),
    exits=((3, "the pack is written, but the gate does not hold"),),
)
