"""moet serve generations."""

import argparse

from serving.control import options as shared
from serving.generations import listing, store
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--server", metavar="NAME", help="which server (default: this user's only one)")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    listing.show(store.read(shared.server(options)), out)
    return 0


VERB = Verb(
    summary="list what was served on this host, numbered: staged, running, previous, superseded, failed",
    description="""A generation is an image, every knob and switch, the caches and the KV format, who made it, when,
and how it went. The engine is not asked: `moet serve status` does that. With --json everything that is stored.""",
    arguments=arguments,
    run=run,
    examples=(("serve generations", "the table"), ("serve generations --json", "for programs")),
)
