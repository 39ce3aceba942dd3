"""moet image list."""

import argparse

from images.engine.errors import EngineError
from images.engine.opening import add_arguments as add_engine
from images.engine.opening import open_engine
from images.inspect import arguments
from images.inspect.listing import Listing, split
from images.registry.client import Registry
from releases.rollback.state import State
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = """Lists tags, one a row: the releases of CHANGELOG.md with their records, what the engine has (by the
images' own label org.moet.tag, and by its tags), and with --registry what a repository there has. * marks the release
that this host's state says is current. A row that disagrees is followed by a line that says how: the engine or the
registry has another image under a release's tag, or one that CHANGELOG.md does not know; a record is missing. Builds
that are no release (-dev) are listed and held against nothing. An engine is not needed: where none answers, that is
said."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("line", metavar="LINE", nargs="?", help="the only line to list, such as dsv41 (default: all)")
    parser.add_argument(
        "--registry",
        metavar="HOST/NAME",
        help="also list this repository: HOST[:PORT]/[PREFIX/]NAME, as 127.0.0.1:5000/dsv41",
    )
    add_engine(parser)
    arguments.add_registry(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    known = arguments.known(options)
    listing = Listing(options.line)
    remote = split(options.registry, options.line) if options.registry else None
    if known is None:
        out.note("no releases are known here: neither a source tree around this folder nor a carried copy")
    else:
        listing.add_known(known)
    try:
        engine = open_engine(options.engine, options.host)
    except EngineError as error:
        if options.engine or options.host:
            raise
        out.note(f"no engine is listed: {error}")
    else:
        try:
            listing.add_engine(engine)
        finally:
            engine.close()
    if remote is not None:
        address, name, line = remote
        asking = out.doing(f"asking {address} for the tags of {name}")
        with asking, Registry(address, options.plain_http, options.authfile) as registry:
            listing.add_registry(registry, name, line)
    lines = {row.tag.partition(":")[0] for row in listing.rows.values()} | ({options.line} if options.line else set())
    current = (State.read(line).current for line in sorted(lines))
    listing.add_current(place.tag for place in current if place is not None)
    out.document(listing.document())
    listing.show(out)
    return 3 if listing.disagree else 0


VERB = Verb(
    summary="list the tags that tree, engine and registry have, and where they disagree",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        ("image list", "everything that is known here"),
        ("image list dsv41 --registry 127.0.0.1:5000/dsv41 --plain-http", "one line, with a registry's tags"),
    ),
    exits=((3, "tree, engine and registry do not agree on some tag; lines below the table say how"),),
)
