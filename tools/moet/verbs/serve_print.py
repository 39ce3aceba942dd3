"""moet serve print."""

import argparse
import os

from serving.launch import request
from serving.render import printed
from tools.cli.output import Output
from tools.moet.verb import Verb


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    printed.show(request.chosen(options), os.environ, out)
    return 0


VERB = Verb(
    summary="show the exact command that serves a profile, and what each knob does in it",
    description="""Prints `docker run` with all that it is given, then a table: each knob's value, where that came from
(default, environment, --set, or the knob that asks for it), and what it turns into. Nothing is started: the same as
`moet serve up --print`.

The API is on a loopback address unless BIND says otherwise, and then there must be an API key, in VLLM_API_KEY or
API_KEY_FILE. The key itself is in no command: Docker takes it from the environment or the file.""",
    arguments=request.add_arguments,
    run=run,
    examples=(
        ("serve print dsv41 --set MODEL_DIR=/models/dsv41", "with what the profile says"),
        ("serve print dsv41 --set MODEL_DIR=/models/dsv41 --set KV_OFFLOAD_GIB=64", "64 GiB for KV blocks"),
    ),
)
