"""moet release receipt."""

import argparse
import contextlib
import re
import sys
from pathlib import Path

from releases.known import Known
from releases.receipts import in_commit, receipt
from releases.receipts.receipt import Subject
from releases.tag import Tag
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = """Runs COMMAND, shows what it says, and writes a receipt: the image that it is about, the command, its
output, the hardware, the kernel, the commit. CHANGELOG.md links to receipts wherever it states a figure, and release
check looks the figure up in the receipt's output.

The output is recorded without terminal control, and with <tree>, <home>, <bazel>, <tmp> and <host> in place of what
these are on this machine; of more than 1 MiB, the end is kept. A command that fails leaves no receipt, and its exit
status becomes this one's. A receipt is never overwritten.

With --in-commit, COMMAND runs in a clean folder with the files of the release's commit, with a Bazel that has an output
base of its own; what it builds there with --config=release is the released image."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("--tag", help="the release that the receipt is about")
    subject.add_argument("--digest", help="the image that it is about, sha256:<64 hex digits>")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a new .json file below docs/evidence")
    parser.add_argument(
        "--in-commit", action="store_true", help="run in a clean folder with the files of the release's commit"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="what to run")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UserError("no command was given: moet release receipt --tag TAG --out FILE -- COMMAND ...")
    known = Known.find(options.tree)
    root = known.need_tree("a receipt")
    path = receipt.place(root, options.out)
    subject, commit = _subject(known, options)
    with contextlib.ExitStack() as stack:
        where = None
        if options.in_commit:
            if commit is None:
                raise UserError("--in-commit needs a release: name it with --tag")
            where = stack.enter_context(in_commit.place(Git(root), commit))
        made = receipt.take(
            root,
            subject,
            command,
            show=_show(out),
            folder=where.folder if where else None,
            environment=where.environment if where else None,
            places=where.places if where else None,
        )
    if made.exit != 0:
        out.note(f"{command[0]} failed with exit status {made.exit}: no receipt was written")
        return made.exit
    receipt.write(path, made)
    shown = path.relative_to(root.resolve()) if path.is_relative_to(root.resolve()) else path
    out.document(
        {
            "schema": "moet.release-receipt.v1",
            "path": str(shown),
            "subject": {"tag": subject.tag, "digest": subject.digest},
            "commit": made.commit,
        }
    )
    out.line(f"wrote {shown}: link to it with [receipt]({shown})")
    return 0


def _subject(known: Known, options: argparse.Namespace) -> tuple[Subject, str | None]:
    if options.tag:
        entry = known.entry(Tag.parse(options.tag))
        return Subject(str(entry.tag), entry.digest), entry.commit
    if not _DIGEST.fullmatch(options.digest):
        raise UserError(f"--digest {options.digest!r}: expected sha256:<64 hex digits>")
    for entry in known.changelog.entries:
        if entry.digest == options.digest:
            return Subject(str(entry.tag), entry.digest), entry.commit
    return Subject(None, options.digest), None


def _show(out: Output) -> receipt.Show:
    stream = sys.stderr.buffer if out.as_json else sys.stdout.buffer

    def show(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return show


VERB = Verb(
    summary="run a command and keep what it said of a release as evidence",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        (
            "release receipt --tag dsv41:vllm0.33.0-r1 --in-commit --out docs/evidence/dsv41-r1/engine_test.json"
            " -- bazel test --config=release --test_output=all //images/dsv41:engine_test",
            "the image's tests, on the released image, with their own words",
        ),
        (
            "release receipt --tag dsv41:vllm0.33.0-r1 --out docs/evidence/dsv41-r1/verify.json"
            " -- moet image verify dsv41:vllm0.33.0-r1",
            "that it can be built again",
        ),
    ),
)
