"""moet patch refresh: renew a patch."""

import argparse
import datetime
from pathlib import Path

from patches.engine import edit
from patches.tools import begin, options
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser)
    parser.add_argument("name", metavar="NAME", help="the patch, with or without .patch")
    parser.add_argument("files", metavar="FILE", nargs="*", help="with --edit, further files of the wheel to take out")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--from", dest="source", metavar="DIR", type=Path, help="make it from this work folder")
    which.add_argument("--edit", metavar="DIR", type=Path, help="take it out into this work folder, to be edited")


def _run(given: argparse.Namespace, out: Output) -> int:
    place = options.chosen(given)
    name = begin.patch_name(given.name)
    today = datetime.date.today()
    if given.files and not given.edit:
        raise UserError("FILE goes with --edit DIR: it is taken out to be edited")
    with options.writing(place, out) as wheel:
        if given.edit:
            told = edit.take_out(wheel, place.folder, name, given.files, given.edit)
        elif given.source:
            told = edit.read_back(wheel, place.folder, name, given.source, today)
        else:
            told = [edit.rebase(wheel, place.folder, name, today)]
    for line in told:
        out.line(line)
    out.document({"schema": "moet.patch-refresh.v1", "patch": name, "told": told})
    return 0


VERB = Verb(
    summary="renew a patch: its line numbers, or from a work folder that was edited",
    description=(
        "Alone, renews the line numbers of a patch that only moved. With --edit DIR, takes its files and HEADER out, "
        "as far as it applies, and names the hunks that are left to do by hand. With --from DIR, makes the patch "
        "from that folder and lists it if it is new. Last-Update becomes today where the patch changed. Patches "
        "before it must apply."
    ),
    arguments=_arguments,
    run=_run,
    examples=(
        ("patch refresh native-next-n", "renew its line numbers"),
        ("patch refresh native-next-n --edit /tmp/n", "take it out to edit it"),
        ("patch refresh native-next-n --from /tmp/n", "make it from there"),
    ),
)
