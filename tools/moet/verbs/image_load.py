"""moet image load."""

import argparse
from pathlib import Path

from images.engine.load import load_layout
from images.engine.opening import add_arguments
from releases.known import Known
from releases.tag import Tag
from releases.tree.git import Git
from releases.tree.released_image import released_image
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("image", metavar="X", help="an OCI layout (folder), or the TAG of a release in CHANGELOG.md")
    parser.add_argument("--ref", metavar="NAME:TAG", help="which image of the layout (default: its only one)")
    parser.add_argument("--name", metavar="NAME:TAG", help="the name it gets in the engine (default: its own)")
    add_arguments(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    if Path(options.image).is_dir():
        load_layout(Path(options.image), options.ref, options.name, options.engine, options.host, out)
        return 0
    tag = Tag.parse(options.image)
    known = Known.find(options.tree)
    entry = known.entry(tag)
    with released_image(Git(known.need_tree("a release that is built")), entry, out) as image:
        load_layout(image.directory, str(tag), options.name, options.engine, options.host, out)
    return 0


VERB = Verb(
    summary="put an image into Docker or podman, only the layers that it lacks",
    description="""Loads an image of an OCI layout, for example bazel-bin/images/dsv41/dsv41, or a release.

A release is taken from what Bazel built last, where that has the digest of CHANGELOG.md, or else built from the
release's commit. The engine holds the image under its digest afterwards, or the command fails. A release's tag that
points at another image in the engine is not moved; any other tag is, and that is said.""",
    arguments=arguments,
    run=run,
    examples=(
        ("image load bazel-bin/images/dsv41/dsv41", "what was built last"),
        ("image load dsv41:vllm0.33.0-r1 --engine podman", "a release, into podman"),
    ),
)
