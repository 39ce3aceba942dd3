"""moet experts verify."""

import argparse
from pathlib import Path

from tools.cli.output import Output
from tools.experts.quantize import options, verify
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("pack", type=Path, metavar="PACK", help="folder of a pack")
    parser.add_argument("--delta", type=Path, metavar="DIR", help="its delta pack, too")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="quantize experts of it again and compare")
    parser.add_argument(
        "--check", type=options.number, default=4, metavar="N", help="how many experts, at random (default: 4; 0: all)"
    )
    parser.add_argument("--seed", type=options.number, default=0, metavar="N", help="of the choice (default: 0)")


def run(asked: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    with out.progress() as bar:
        found = verify.verify(asked.pack, asked.delta, asked.checkpoint, asked.check, asked.seed, bar)
    verify.show(found, out)
    out.document(verify.document(found))
    return 0 if found.sound else 1


VERB = Verb(
    summary="whether a pack is whole, and what the quantizer makes of its checkpoint",
    description="""Reads every record against its checksum. With --checkpoint it compares the identity, then quantizes
some experts again with the plain numpy form of the quantizer and compares every byte; and it says how far the experts'
weights are from the checkpoint's, and their outputs for random inputs, through the model's own SwiGLU with its clamp.

Exit status 1: something is wrong; each thing has a line.""",
    arguments=arguments,
    run=run,
    examples=(
        ("experts verify /packs/glm", "checksums"),
        ("experts verify /packs/glm --checkpoint /models/GLM-5.2-NVFP4 --check 16", "and 16 experts bit for bit"),
    ),
)
