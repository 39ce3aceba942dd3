"""moet release cut."""

import argparse

from releases.cutting import cut
from releases.known import Known
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = """Builds the next release of LINE from the commit that is checked out and writes what is known of it:
an entry in CHANGELOG.md (digest, image id, commit, base, steps, the way back; what differs from the release before, and
what [Unreleased] said of the line), its record below releases/records, and the number of the next release into
images/LINE/line.bzl. What only a person can say is marked TODO: in the entry.

All of it is written or nothing: a cut that was killed is finished by the next one. Nothing is committed, tagged or
published. The tree must have no changes, and the tag must be free.

With --base, the release is r0: the pinned upstream without steps, which has no number to count on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("line", metavar="LINE", help="the line, such as dsv41")
    parser.add_argument("--base", action="store_true", help="cut r0, the pinned upstream without steps")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    root = Known.find(options.tree).need_tree("cutting a release")
    done = cut.cut(root, options.line, base=options.base, doing=out.doing, note=out.note)
    entry = done.entry
    out.document(
        {
            "schema": "moet.release-cut.v1",
            "tag": str(entry.tag),
            "digest": entry.digest,
            "image_id": entry.image_id,
            "commit": entry.commit,
            "follows": str(entry.follows) if entry.follows else None,
            "written": list(done.written),
            "todo": list(done.todo),
            "resumed": done.resumed,
        }
    )
    out.line(f"{entry.tag} of {entry.commit}")
    out.line(f"digest    {entry.digest}")
    out.line(f"image id  {entry.image_id}")
    for path in done.written:
        out.line(f"wrote {path}")
    out.line("Next:")
    receipt = f"docs/evidence/{entry.tag.line}-{entry.tag.name}/NAME.json"
    out.line(f"1. moet release receipt --tag {entry.tag} --in-commit --out {receipt} -- COMMAND ...")
    out.line(f"2. fill in CHANGELOG.md ({len(done.todo)} TODO), until moet release check has nothing to say")
    out.line(f"3. git add --all && git commit -m 'Release {entry.tag}'")
    out.line(f"4. moet release publish {entry.tag} ...")
    return 0


VERB = Verb(
    summary="build the next release of a line and write its entry, record and next number",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        ("release cut dsv41", "the next release of dsv41"),
        ("release cut dsv41 --base", "r0 of a new base: upstream without steps"),
    ),
)
