"""moet image push."""

import argparse
from pathlib import Path

from images.engine.push import add_arguments, push_layout
from releases.known import Known
from releases.tag import Tag
from releases.tree.git import Git
from releases.tree.released_image import released_image
from tools.cli.output import Output
from tools.moet.verb import Verb


def arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("image", metavar="X", help="an OCI layout (folder), or the TAG of a release in CHANGELOG.md")
    parser.add_argument("target", metavar="REF", help="where to: REGISTRY/NAME:TAG")
    parser.add_argument("--ref", metavar="NAME:TAG", help="which image of the layout (default: its only one)")
    add_arguments(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    if Path(options.image).is_dir():
        push_layout(Path(options.image), options.ref, options.target, options.plain_http, options.authfile, out)
        return 0
    tag = Tag.parse(options.image)
    known = Known.find(options.tree)
    entry = known.entry(tag)
    with released_image(Git(known.need_tree("a release that is built")), entry, out) as image:
        push_layout(image.directory, str(tag), options.target, options.plain_http, options.authfile, out)
    return 0


VERB = Verb(
    summary="push an image to a registry, its digest kept",
    description="""Pushes an image of an OCI layout, for example bazel-bin/images/dsv41/dsv41, or a release.

Only blobs that the registry lacks are sent, the manifest last; interrupted, it is run again. A release's tag
(NAME:BASE-rN) that stands for another image there is not moved; any other tag is, and that is said. To publish a
release with its SBOM, provenance and signatures: moet release publish.""",
    arguments=arguments,
    run=run,
    examples=(
        ("image push bazel-bin/images/dsv41/dsv41 REGISTRY/dsv41:vllm0.33.0-r1-dev", "what was built last"),
        ("image push dsv41:vllm0.33.0-r1 REGISTRY/dsv41:vllm0.33.0-r1", "a release"),
    ),
)
