"""moet patch lint: what is wrong with a series."""

import argparse
import datetime

from patches.tools import lint, options, wheels
from tools.cli.output import Output
from tools.moet.verb import Verb


def _run(given: argparse.Namespace, out: Output) -> int:
    place = options.chosen(given)
    with wheels.pinned(place, out) as wheel:
        found = lint.lint(place, wheel, datetime.date.today())
    errors = [finding for finding in found if finding.error]
    for finding in found:
        out.line(f"{'' if finding.error else 'note: '}{finding.where}: {finding.text}")
    out.line(f"{place.shown}: {len(errors) or 'no'} problem{'' if len(errors) == 1 else 's'}")
    out.document({
        "schema": "moet.patch-lint.v1",
        "series": place.shown,
        "ok": not errors,
        "findings": [
            {"level": "error" if finding.error else "note", "where": finding.where, "text": finding.text}
            for finding in found
        ],
    })
    return 3 if errors else 0


VERB = Verb(
    summary="check a series: headers, order, switches, steps, tests, context, blanks",
    description=(
        "Checks what can be checked without running anything: every patch applies exactly to the pinned wheel; "
        "headers are complete and Last-Update is right; switches are registered in the project's envs.py; every patch "
        "belongs to one step of its lines and every step has its patches; every patch has a test file; hunks quote "
        "three lines of context and no more; no added line ends in blanks. Files that several patches touch are notes."
    ),
    arguments=options.add,
    run=_run,
    examples=(("patch lint", "before a commit"),),
    exits=((3, "the series has problems, one a line"),),
)
