"""moet patch doctor: what another version of upstream would break."""

import argparse
import datetime
from pathlib import Path

from patches.engine.series import load_series
from patches.tools import doctor, doctor_report, options, rewrite, wheels
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb


def _arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser)
    parser.add_argument(
        "--to",
        metavar="VERSION",
        action="append",
        required=True,
        help="a published version, or the path of a wheel (ends in .whl); may be repeated",
    )
    parser.add_argument(
        "--write",
        metavar="DIR",
        type=Path,
        help="write the series for that version into the new folder DIR: what applies is renewed, the rest left out",
    )


def _run(given: argparse.Namespace, out: Output) -> int:
    if given.write and len(given.to) > 1:
        raise UserError("--write needs a single --to: a series is for one version")
    if given.write and given.write.exists():
        raise UserError(f"{given.write}: exists already: remove it or name another folder")
    place = options.chosen(given)
    series = load_series(place.folder)
    data = {patch.name: (place.folder / patch.name).read_bytes() for patch in series.patches}
    today = datetime.date.today()
    found = []
    written = None
    with wheels.pinned(place, out) as pinned:
        for version in given.to:
            with wheels.named(place, version, out) as other:
                with out.doing(f"holding {len(data)} patches against {other.project} {other.version}"):
                    found.append(doctor.diagnose(series, data, pinned, other, today))
                doctor_report.show(place, found[-1], out)
                if given.write:
                    with options.alone(given.write, out):
                        written = rewrite.write(place, found[-1], other, given.write)
                    for line in written:
                        out.line(line)
        about = {"version": pinned.version, "file": pinned.file, "sha256": pinned.sha256}
    if len(found) > 1:
        out.line()
        for one in found:
            out.line(doctor_report.summary(one))
    out.document(doctor_report.as_json(place, about, found, str(given.write) if written else None))
    return 3 if any(one.needs_work for one in found) else 0


VERB = Verb(
    summary="say what another version of upstream would break in a series",
    description=(
        "Fetches the wheel of that version, holds every patch of the series against it, and reports in one piece: "
        "clean, offset, already upstream, partly upstream, conflict, file gone, or waiting for a patch that failed, "
        "and then how it stands without that one. For a conflict it shows what upstream changed there between the "
        "two versions; for a file that is gone, where it may be now. Every patch is named with its step, switch, "
        "tests and drop condition. Nothing is written without --write."
    ),
    arguments=_arguments,
    run=_run,
    examples=(
        ("patch doctor --to 0.34.0", "before a bump"),
        ("patch doctor --to 0.32.0 --to 0.31.0 --json", "how far back the series reaches, for a program"),
        ("patch doctor --to 0.34.0 --write patches/vllm-0.34.0", "begin the bump: the series for that version"),
    ),
    exits=((3, "a patch conflicts, waits, is upstream by now, or lost its file; 0 where all are clean or offset"),),
)
