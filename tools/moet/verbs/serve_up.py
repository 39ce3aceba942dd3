"""moet serve up."""

import argparse
import os

from releases.known import Known
from serving.control import change
from serving.control import options as shared
from serving.control.session import changing
from serving.launch import request
from serving.render import printed
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    request.add_arguments(parser, without="what was served last, as it was")
    parser.add_argument("--print", action="store_true", help="show the command and what each knob does; start nothing")
    shared.add_change(parser)
    shared.add_server(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    how = shared.how(options)
    if options.profile is None:
        if options.given or options.print:
            raise UserError("--set and --print need a PROFILE")
        with changing(shared.server(options), options.host, Known.find(options.tree), out) as session:
            change.up_again(session, how)
        return 0
    if options.server:
        raise UserError("--server is for `up` without a PROFILE; a profile's server is named by its knob NAME")
    asked = request.chosen(options)
    if options.print:
        printed.show(asked, os.environ, out)
        return 0
    for note in asked.notes:
        out.note(f"note: {note}")
    name = asked.settings.of("name").text
    with changing(name, options.host, Known.find(options.tree), out) as session:
        change.up(session, asked, how)
    return 0


VERB = Verb(
    summary="serve a profile: start it, wait until it is ready, or go back to what ran before",
    description="""Takes the knobs as `moet serve print` does, and makes a generation of them: image, knobs, switches,
caches, KV format. The image is found or had, the host looked at (as `moet serve preflight` does) and a new container
made before anything is stopped. Then what runs is stopped and kept, the new one is started and waited for: attested,
and one token computed. Where that does not come in time, its last output is saved, and what ran before is started
again: GPUs have no memory for two. Where the caches are empty or another configuration's, a first start fills them
before.

What is served already is left alone. A generation stores the value of every knob: an environment or a profile that
changes later does not change it. API keys are not stored.

An `up` that was interrupted, by whatever, is settled by the next one. Ctrl-C goes back; a second one leaves at
once.""",
    arguments=arguments,
    run=run,
    examples=(
        ("serve up dsv41 --set MODEL_DIR=/models/dsv41", "serve it"),
        ("serve up dsv41 --set MODEL_DIR=/models/dsv41 --set MAX_NUM_SEQS=16", "another generation, with that knob"),
        ("serve up", "what was served last, once more: after `down`, a crash or a reboot"),
    ),
    exits=shared.EXITS,
)
