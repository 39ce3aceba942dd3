"""moet serve status."""

import argparse

from releases.known import Known
from serving.control import options as shared
from serving.control.session import looking
from serving.control.status import status
from tools.cli.output import Output
from tools.moet.verb import Verb


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    with looking(shared.server(options), options.host, Known.find(options.tree), out) as session:
        return 0 if status(session) else 1


VERB = Verb(
    summary="say what a server is doing: generation, container, ready or not, live figures, what is under way",
    description="""Ready is: its container runs, its image was attested, and it computed one token just now. Nothing is
changed.

Exit status 1: not ready, or not to be told; stdout says why.""",
    arguments=shared.add_server,
    run=run,
    examples=(("serve status", "for people"), ("serve status --json", "for programs")),
)
