"""moet serve knobs."""

import argparse
from typing import Any

from releases.known import Known
from serving.launch import request
from serving.profiles import load, values
from serving.profiles.model import Knob
from tools.cli.output import Output
from tools.moet.verb import Verb


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    profile = load.load(options.profile, Known.find(options.tree).root)
    knobs = profile.knobs.values()
    rows = [[knob.name, values.show(knob.default), values.expected(knob), knob.meaning] for knob in knobs]
    out.line(f"{profile.line}: {profile.title}")
    out.table(["knob", "default", "takes", "meaning"], rows)
    out.document({
        "schema": "moet.serve-knobs.v1",
        "profile": profile.line,
        "title": profile.title,
        "knobs": [_document(knob) for knob in knobs],
    })
    return 0


def _document(knob: Knob) -> dict[str, Any]:
    return {
        "name": knob.name,
        "kind": knob.kind,
        "takes": values.expected(knob),
        "default": knob.default,
        "required": knob.required,
        "unit": knob.unit,
        "minimum": knob.minimum,
        "maximum": knob.maximum,
        "choices": ["0", knob.on] if knob.kind == "switch" else list(knob.choices),
        "refused": dict(knob.refused),
        "meaning": knob.meaning,
    }


VERB = Verb(
    summary="list the knobs of a profile: default, what each takes, what it is for",
    description=(
        "A knob is set with --set KNOB=VALUE or by the environment variable of its name. A value that no image of the "
        "line can honour is not offered; asked for, it is refused with the reason."
    ),
    arguments=request.add_profile,
    run=run,
    examples=(("serve knobs dsv41", "all of them"), ("serve knobs dsv41 --json", "for programs")),
)
