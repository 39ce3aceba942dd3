"""What a launch is, for people: the exact command, and what each knob does in it."""

from collections.abc import Mapping
from typing import Any

from serving.launch import docker_command, key
from serving.launch.plan import Plan, plan
from serving.launch.request import Request
from serving.launch.settings import Setting
from serving.render import docker
from tools.cli.output import Output

SCHEMA = "moet.serve-print.v1"


def show(asked: Request, environment: Mapping[str, str], out: Output) -> None:
    """Prints the command and the table of knobs. Raises UserError for settings that cannot be served."""
    found = plan(asked.settings, asked.image, key.find(asked.settings, environment), "published")
    for note in asked.notes:
        out.note(f"note: {note}")
    out.text(f"{docker.guard(found.launch)}{docker.command(found.launch)}\n\n")
    knobs = [_knob(setting, found, asked) for setting in asked.settings.by_name.values()]
    columns = ["knob", "value", "from", "does", "meaning"]
    rows = [[one["name"], one["value"], one["from"], "\n".join(one["does"]) or "-", one["meaning"]] for one in knobs]
    out.table(columns, rows)
    out.document({
        "schema": SCHEMA,
        "profile": asked.settings.profile.line,
        "image": asked.image,
        "command": docker_command.run(found.launch, "--detach"),
        "knobs": knobs,
        "notes": list(asked.notes),
    })


def _knob(setting: Setting, found: Plan, asked: Request) -> dict[str, Any]:
    is_image = setting.knob.role == "image"
    return {
        "name": setting.knob.name,
        "value": asked.image if is_image else setting.text,
        "from": asked.image_source if is_image else setting.source,
        "does": list(found.does[setting.knob.name]),
        "meaning": setting.knob.meaning,
    }
