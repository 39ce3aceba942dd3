"""moet serve diff."""

import argparse

from serving.control import options as shared
from serving.generations import listing, store
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "a", metavar="A", type=shared.number, nargs="?", help="a generation (default: the previous one)"
    )
    parser.add_argument("b", metavar="B", type=shared.number, nargs="?", help="another (default: the running one)")
    parser.add_argument("--server", metavar="NAME", help="which server (default: this user's only one)")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    listing.show_diff(store.read(shared.server(options)), options.a, options.b, out)
    return 0


VERB = Verb(
    summary="say what differs between two generations: image and steps, knobs, KV format, caches, launch",
    description="The engine is not asked: all of it is stored with the generations.",
    arguments=arguments,
    run=run,
    examples=(("serve diff", "the previous one and the running one"), ("serve diff 3 5", "two others")),
)
