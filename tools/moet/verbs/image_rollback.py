"""moet image rollback."""

import argparse
from pathlib import Path

from images.engine.opening import add_arguments, open_engine
from releases.known import Known
from releases.rollback.rollback import rollback
from releases.rollback.rollback_sources import Sources, split
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("line", metavar="LINE", help="the line, for example dsv41")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--to",
        metavar="TAG",
        help="the release to go to, older or newer (default: the one that the current release's entry in CHANGELOG.md"
        " names as the way back)",
    )
    which.add_argument("--undo", action="store_true", help="go to what was current before the last change")
    parser.add_argument(
        "--registry",
        metavar="HOST/NAME",
        help="the repository that the image is pulled from, by its digest, where the engine lacks it",
    )
    parser.add_argument(
        "--plain-http", action="store_true", help="allow plain HTTP and certificates that do not verify"
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="where the engine lacks it, build it from its commit; ask no registry"
    )
    parser.add_argument(
        "--key", type=Path, metavar="PUB", help="public key (PEM) that must have signed the image in the registry"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    add_arguments(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    known = Known.find(options.tree)
    root = known.need_tree("--rebuild") if options.rebuild else known.root
    if options.registry:
        split(options.registry)
    if options.key and not options.registry:
        raise UserError("--key needs --registry HOST/NAME: the signature lies beside the image there")
    engine = open_engine(options.engine, options.host)
    try:
        sources = Sources(engine, options.registry, options.plain_http, root, options.rebuild, options.key)
        rollback(known, options.line, options.to, options.undo, sources, out, options.dry_run)
    finally:
        engine.close()
    return 0


VERB = Verb(
    summary="make another release of a line the current one on this host",
    description="""Goes back to an earlier release of a line, or on to a later one.

The release must be in CHANGELOG.md. Its image is looked for in the engine, by its id; then in --registry, by its
digest; then it is built from its commit, where this is Moet's source tree. It is current only once the engine holds it
with the id that CHANGELOG.md states, and it gets its tag where the engine does not have that yet. A tag that points at
another image is not moved: the command refuses and says so.

What is current is kept in $XDG_STATE_HOME/moet/lines/LINE.json (default ~/.local/state/moet), with a numbered history.
Containers that run are left alone. Before anything is done, the switches are named that would do without another
image.""",
    arguments=arguments,
    run=run,
    examples=(
        ("image rollback dsv41", "to the release that the current one's entry names as the way back"),
        ("image rollback dsv41 --to dsv41:vllm0.33.0-r1 --registry REGISTRY/dsv41", "to a release, pulled if need be"),
        ("image rollback dsv41 --undo", "to what was current before the last change"),
    ),
)
