"""moet image diff."""

import argparse

from images.inspect import arguments, contents, diff, difference, source
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = f"""Says how image B differs from image A: pins, steps, patches, switches, attested files, layers, and
how many bytes an engine that has A must get for B. With --files also what the layers hold that they do not share,
file by file; these layers are read and hashed whole.

{source.ORDER}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("before", metavar="A", help="an image: tag, digest, layout, tar, reference")
    parser.add_argument("after", metavar="B", help="another one, likewise")
    parser.add_argument("--files", action="store_true", help="compare the files of the layers that differ")
    parser.add_argument("--exit-code", action="store_true", help="exit with 3 where the images do not hold the same")
    arguments.add(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    known = arguments.known(options)
    before = arguments.view(options.before, options, known)
    after = arguments.view(options.after, options, known)
    files = None
    if options.files:
        with out.progress() as bar:
            bar.start("reading layers", contents.to_read(before, after))
            files = contents.compare(before, after, bar.advance)
    found = difference.compare(before.manifest, after.manifest)
    out.document(diff.document(before, after, found, files))
    diff.show(out, before, after, found, files)
    return 3 if options.exit_code and not diff.same(before, after, found) else 0


VERB = Verb(
    summary="say how two images differ",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        ("image diff dsv41:vllm0.33.0-r0 dsv41:vllm0.33.0-r1", "two releases, by their records"),
        ("image diff dsv41:vllm0.33.0-r1 bazel-bin/images/dsv41/dsv41", "a release and what was just built"),
        ("image diff bazel-bin/images/dsv41/dsv41.base bazel-bin/images/dsv41/dsv41 --files", "file by file"),
    ),
    exits=((3, "with --exit-code: they differ in more than tag and commit"),),
)
