"""moet patch show: a series at a glance, or one patch."""

import argparse

from patches.tools import options, overview
from patches.tools.place import Place
from tools.cli.output import Output
from tools.moet.verb import Verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="show this patch whole, with or without .patch")


def _run(given: argparse.Namespace, out: Output) -> int:
    place = options.chosen(given)
    found = overview.overviews(place, given.name)
    if given.name:
        _one(place, found[0], out)
    else:
        pin = place.pin
        out.line(f"{place.shown}: {pin.project} {pin.version}, lines {', '.join(place.lines) or 'none'}; {pin.file}")
        out.table(overview.COLUMNS, [overview.row(place, one) for one in found])
    out.document({
        "schema": "moet.patch-show.v1",
        "series": place.shown,
        "lines": list(place.lines),
        "pin": {"project": place.pin.project, "version": place.pin.version, "sha256": place.pin.sha256},
        "patches": [overview.as_json(place, one) for one in found],
    })
    return 0


def _one(place: Place, one: overview.Overview, out: Output) -> None:
    for step in place.owners(one.patch.name):
        out.line(f"{place.shown}/{one.patch.name}: step {step} of {step.line}, default {step.default}")
    for path in place.tests(one.patch.name):
        out.line(f"test: {path}")
    for path, added, removed in one.files:
        out.line(f"file: {path} +{added} -{removed}")
    out.line()
    for text, style in overview.styled((place.folder / one.patch.name).read_bytes()):
        out.line(text, style=style)


VERB = Verb(
    summary="show a series in order with steps, switches and sizes, or one patch whole",
    description=(
        "Without NAME, a table of the series in the order in which its patches apply: step, switch with its default, "
        "lines added and removed, files, tests, date. With NAME, that patch with its header, in colour on a terminal."
    ),
    arguments=_arguments,
    run=_run,
    examples=(("patch show", "the series"), ("patch show native-next-n", "one patch")),
)
