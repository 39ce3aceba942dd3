"""moet serve print."""

import argparse
import os
from typing import Any

from serving.launch import docker_command, key, request
from serving.launch.plan import Plan, plan
from serving.launch.request import Request
from serving.launch.settings import Setting
from serving.render import docker
from tools.cli.output import Output
from tools.moet.verb import Verb


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    asked = request.chosen(options)
    found = plan(asked.settings, asked.image, key.find(asked.settings, os.environ), "published")
    for note in asked.notes:
        out.note(f"note: {note}")
    out.text(f"{docker.guard(found.launch)}{docker.command(found.launch)}\n\n")
    knobs = [_knob(setting, found, asked) for setting in asked.settings.by_name.values()]
    columns = ["knob", "value", "from", "does", "meaning"]
    rows = [[one["name"], one["value"], one["from"], "\n".join(one["does"]) or "-", one["meaning"]] for one in knobs]
    out.table(columns, rows)
    out.document({
        "schema": "moet.serve-print.v1",
        "profile": asked.settings.profile.line,
        "image": asked.image,
        "command": docker_command.run(found.launch, "--detach"),
        "knobs": knobs,
        "notes": list(asked.notes),
    })
    return 0


def _knob(setting: Setting, found: Plan, asked: Request) -> dict[str, Any]:
    is_image = setting.knob.role == "image"
    return {
        "name": setting.knob.name,
        "value": asked.image if is_image else setting.text,
        "from": asked.image_source if is_image else setting.source,
        "does": list(found.does[setting.knob.name]),
        "meaning": setting.knob.meaning,
    }


VERB = Verb(
    summary="show the exact command that serves a profile, and what each knob does in it",
    description="""Prints `docker run` with all that it is given, then a table: each knob's value, where that came from
(default, environment, --set, or the knob that asks for it), and what it turns into. Nothing is started.

The API is on a loopback address unless BIND says otherwise, and then there must be an API key, in VLLM_API_KEY or
API_KEY_FILE. The key itself is in no command: Docker takes it from the environment or the file.""",
    arguments=request.add_arguments,
    run=run,
    examples=(
        ("serve print dsv41 --set MODEL_DIR=/models/dsv41", "with what the profile says"),
        ("serve print dsv41 --set MODEL_DIR=/models/dsv41 --set KV_OFFLOAD_GIB=64", "64 GiB for KV blocks"),
    ),
)
