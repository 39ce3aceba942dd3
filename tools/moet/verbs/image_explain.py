"""moet image explain."""

import argparse

from images.inspect import arguments, difference, explain, source, tree
from images.inspect.errors import InspectError
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = f"""Says what an image is made of: commit, base, pins, numbered steps with their reason, switch, numerics,
evidence and patches, kernels, layers. All of it is read from the image (or its record) and held against the hashes
that it is covered by; of the layers, the one that holds Moet's manifest is read. Only a registry's reference uses the
network.

{source.ORDER}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("image", metavar="X", help="a release's tag, a digest, an OCI layout, a tar, a reference")
    parser.add_argument("--pins", action="store_true", help="list every pin, and not their numbers alone")
    parser.add_argument(
        "--against-tree",
        action="store_true",
        help="say how the image differs from what the tree would build (Bazel builds the manifest)",
    )
    arguments.add(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    known = arguments.known(options)
    if options.against_tree and (known is None or known.root is None):
        raise InspectError("--against-tree needs Moet's source tree: go into one or name it with --tree DIR")
    view = arguments.view(options.image, options, known)
    against = None
    if options.against_tree and known is not None and known.root is not None:
        with out.doing(f"building the manifest of the tree {known.root}"):
            built = tree.of(view.manifest, known.root)
        against = built, difference.compare(view.manifest, built.manifest)
    release = source.release_of(view, known)
    out.document(explain.document(view, release, against))
    if against is None:
        explain.show(out, view, release, options.pins)
        return 0
    explain.show_against(out, view, *against)
    return 3 if against[1] else 0


VERB = Verb(
    summary="say what an image is made of, from the image itself",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        ("image explain dsv41:vllm0.33.0-r1", "a release, by the tree's record of it"),
        ("image explain bazel-bin/images/dsv41/dsv41", "what was just built"),
        ("image explain 127.0.0.1:5000/dsv41:vllm0.33.0-r1 --plain-http", "in a registry: two documents, one layer"),
        ("image explain engine://dsv41:vllm0.33.0-r1", "what Docker or podman calls so, whatever the tree knows"),
        ("image explain dsv41:vllm0.33.0-r1 --against-tree", "what has changed in the tree since"),
    ),
    exits=((3, "with --against-tree: the tree would build another image"),),
)
