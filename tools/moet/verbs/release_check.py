"""moet release check."""

import argparse

from releases.changelog.problem import CHANGELOG
from releases.checking import check
from releases.known import Known
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = """Holds every line of CHANGELOG.md against what it speaks of, and lists all that does not hold, one line
each. A release is refused when

- its entry is empty, unwritten (TODO:), or has no receipt about its digest;
- a figure has no receipt in the same bullet, or is not in that receipt's output. A figure is a number with a unit, %
  or x, or a number of tests ("94 tests pass", "20 of 20 passed"). Code spans, versions, dates and names are none;
- a receipt is missing, is not one, is of a command that failed, or is about an image that is no release;
- its tag is used twice, or its digest, image id, commit, base or steps were otherwise in any committed version of
  CHANGELOG.md, or it was there and is gone, or its git tag points elsewhere;
- a step's number stood for another name before; the steps are not the record's; or the bullets ("Step 2, NAME: ...")
  do not say exactly which steps were added, removed or changed;
- its record is missing or is another image's;
- its commit does not exist, is not part of the branch, or has another line, base, number or steps; a test that a step
  gives as its evidence does not exist there;
- its way back does not exist, is not older, or is itself; a switch of it is not the image's, or not 0;
- entries or dates are out of order, or the tree's next number is released already.

In a shallow clone it says what could not be checked. With --rebuild it also builds the newest release of each line
again, in a clean folder with an empty output base, and compares the digests; --rebuild all: every release."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "--rebuild",
        nargs="?",
        const="newest",
        choices=["newest", "all"],
        help="also build again the newest release of each line (newest), or every one (all), and compare",
    )


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    root = Known.find(options.tree).need_tree("checking releases")
    rebuild = {None: None, "newest": check.newest, "all": check.every}[options.rebuild]
    found = check.check(root, rebuild, out.doing)
    out.document(
        {
            "schema": "moet.release-check.v1",
            "releases": [str(tag) for tag in found.releases],
            "problems": [{"file": CHANGELOG, "line": one.line or None, "text": one.text} for one in found.problems],
            "notes": list(found.notes),
        }
    )
    for note in found.notes:
        out.note(f"note: {note}")
    for problem in found.problems:
        out.line(str(problem))
    count = f"{len(found.releases)} release{'s' * (len(found.releases) != 1)}"
    wrong = f"{len(found.problems)} problem{'s' * (len(found.problems) != 1)}"
    out.note(f"{count}, {wrong if found.problems else 'everything holds'}")
    return 1 if found.problems else 0


VERB = Verb(
    summary="hold every line of CHANGELOG.md against commits, records and receipts",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        ("release check", "what CI runs"),
        ("release check --rebuild", "and build the newest release of each line again"),
    ),
)
