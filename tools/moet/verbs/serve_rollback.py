"""moet serve rollback."""

import argparse

from releases.known import Known
from serving.control import change
from serving.control import options as shared
from serving.control.session import changing
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "number", metavar="N", type=shared.number, nargs="?", help="the generation (default: the previous one)"
    )
    shared.add_change(parser)
    shared.add_server(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    with changing(shared.server(options), options.host, Known.find(options.tree), out) as session:
        change.rollback(session, options.number, shared.how(options))
    return 0


VERB = Verb(
    summary="serve an earlier generation again, or go on with what runs",
    description="""Makes a new generation of an earlier one, to the letter: its image by its id, every knob, every
switch. The image is found or had before anything is stopped. The rest is as in `moet serve up`: stop, start, check, or
back.

Where another format's KV blocks lie in its disk tier, which it would misread, this refuses; --own-kv-dir gives it a
folder of its own beside that. Caches of another configuration are left alone: it fills its own by a first start.""",
    arguments=arguments,
    run=run,
    examples=(
        ("serve rollback", "to what ran before"),
        ("serve rollback 3", "to generation 3 of `moet serve generations`"),
    ),
    exits=shared.EXITS,
)
