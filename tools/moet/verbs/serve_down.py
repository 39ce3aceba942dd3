"""moet serve down."""

import argparse

from releases.known import Known
from serving.control import change
from serving.control import options as shared
from serving.control.session import changing
from tools.cli.output import Output
from tools.moet.verb import Verb


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    with changing(shared.server(options), options.host, Known.find(options.tree), out) as session:
        change.down(session)
    return 0


VERB = Verb(
    summary="stop a server and remove its containers; its generations stay",
    description="""An operation that was interrupted is given up. The watchdog does not start the server again;
`moet serve up` does, as the same generation.""",
    arguments=shared.add_server,
    run=run,
    examples=(("serve down", "stop this user's only server"),),
)
