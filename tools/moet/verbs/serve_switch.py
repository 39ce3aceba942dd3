"""moet serve switch."""

import argparse

from releases.known import Known
from serving.control import change
from serving.control import options as shared
from serving.control.session import changing
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("given", metavar="SWITCH=VALUE", nargs="+", help="a switch; 0 gives back upstream's path")
    shared.add_change(parser)
    shared.add_server(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    with changing(shared.server(options), options.host, Known.find(options.tree), out) as session:
        change.switch(session, options.given, shared.how(options))
    return 0


VERB = Verb(
    summary="serve what runs with a step switched off or on: a generation of its own",
    description="""The knobs of the running generation stay as they are, and the environment has no say. `moet serve
knobs` lists the switches. The rest is as in `moet serve up`; `moet serve rollback` undoes it.""",
    arguments=arguments,
    run=run,
    examples=(("serve switch VLLM_MOET_PAGED_MQA_LOGITS=0", "without step 7"),),
    exits=shared.EXITS,
)
