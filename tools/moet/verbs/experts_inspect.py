"""moet experts inspect."""

import argparse
from pathlib import Path

from tools.cli.output import Output
from tools.experts.quantize import inspect, options
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("path", type=Path, metavar="DIR", help="folder of a pack or of a checkpoint")
    parser.add_argument("--delta", type=Path, metavar="DIR", help="the pack's delta, too")
    parser.add_argument("--record", type=options.record, metavar="L:E", help="one expert of a pack: layer and expert")


def run(asked: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    document = inspect.inspect(asked.path, asked.delta, asked.record, out)
    out.document(document)
    return 0


VERB = Verb(
    summary="what a pack or a checkpoint holds",
    description="""Of a pack: geometry, identity, report, the planes of a slot with their offsets; --record shows the
codes and scales of one expert. Of a checkpoint: its experts' format and geometry, and what they would take in other
forms.""",
    arguments=arguments,
    run=run,
    examples=(
        ("experts inspect /models/GLM-5.2-NVFP4", "what a pack of it would take"),
        ("experts inspect /packs/glm --record 3:17", "one expert"),
    ),
)
