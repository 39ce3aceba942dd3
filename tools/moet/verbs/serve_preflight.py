"""moet serve preflight."""

import argparse
import os

from releases.known import Known
from serving.launch import image, key, request
from serving.launch.plan import plan
from serving.preflight import wording
from serving.preflight.host import Host
from serving.preflight.preflight import preflight
from serving.preflight.subject import Subject
from tools.cli.output import Output
from tools.moet.verb import Verb


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    asked = request.chosen(options)
    found = plan(asked.settings, asked.image, key.find(asked.settings, os.environ), "published")
    subject = Subject(found.launch, asked.settings, image.is_released(asked.image, Known.find(options.tree)))
    for note in asked.notes:
        out.note(f"note: {note}")
    results = []
    for result in preflight(subject, Host(), out.doing):
        results.append(result)
        wording.show(result, out)
    out.document(wording.document(subject, results))
    out.note(wording.summary(results))
    return 1 if any(one.state == "finding" for one in results) else 0


VERB = Verb(
    summary="look at this host before a server is started: model, memory, disks, port, engine, driver, cards",
    description="""Takes what `moet serve print` takes, and holds the host against it. Nothing is changed.

Each check is ok, a finding, a hint or skipped. A finding keeps the server from starting or from working: it comes with
why, and the command that mends it. A hint may matter, and is no failure. What was skipped says why: without a GPU, all
that is about cards. Of the checkpoint, headers are read and sizes compared; its tensors' bytes are not.

Where nobody uses the GPUs and there are several, a container of the image copies and sums between them with NCCL, as
the server would, for about a minute: a hang, a wrong byte and a slow way are seen. It is removed afterwards.

Exit status 1: there is a finding; stdout has it, or with --json a document of schema moet.serve-preflight.v1.""",
    arguments=request.add_arguments,
    run=run,
    examples=(
        ("serve preflight dsv41 --set MODEL_DIR=/models/dsv41", "before the first start"),
        ("serve preflight dsv41 --set MODEL_DIR=/models/dsv41 --json", "for programs"),
    ),
)
