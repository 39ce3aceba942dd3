"""moet image verify."""

import argparse
from pathlib import Path

from images.inspect import arguments
from releases.known import Known
from releases.tag import Tag
from releases.verifying import verify
from releases.verifying.verify import Verdict
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb

DESCRIPTION = """Builds the commit of the release TAG again, in a clean folder with an empty output base, and compares
the digest with CHANGELOG.md's: about two minutes where Bazel's repository cache has what the commit pins. Where it
differs, names the first layer that does; and, if --against says where the image is as it was released (layout, tar,
registry's reference), the first file in that layer, and how it differs.

With --signature nothing is built: the SBOM and the provenance that are attached to the image in --registry are
verified with the public key, and must say what CHANGELOG.md and the record say."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("tag", metavar="TAG", help="a release, such as dsv41:vllm0.33.0-r1")
    parser.add_argument("--against", metavar="X", help="the image as it was released: layout, tar or reference")
    parser.add_argument("--signature", action="store_true", help="verify the image's signatures instead of building it")
    parser.add_argument(
        "--key", type=Path, action="append", default=[], metavar="FILE", help="public key to verify with (repeatable)"
    )
    parser.add_argument("--registry", metavar="REF", help="where the image is: REGISTRY/NAME or REGISTRY/NAME:TAG")
    arguments.add(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    tag = Tag.parse(options.tag)
    known = Known.find(options.tree)
    if options.signature:
        return _signature(known, tag, options, out)
    if options.key or options.registry:
        raise UserError("--key and --registry are for --signature")
    known.need_tree("building a release again")
    released = None
    if options.against:
        released = verify.against(known, tag, arguments.view(options.against, options, known))
    found = verify.verify(known, tag, released, out.doing)
    out.document({"schema": "moet.image-verify.v1", **found.document()})
    _show(out, found)
    return 0 if found.same else 3


def _show(out: Output, found: Verdict) -> None:
    if found.same:
        out.line(f"{found.tag}: commit {found.commit} built again is {found.digest}: the same image")
        return
    out.line(f"{found.tag}: DIFFERS")
    out.line(f"released  {found.digest}")
    out.line(f"built     {found.rebuilt} (commit {found.commit})")
    if found.layer:
        out.line(f"layer {found.layer.number}, {found.layer.name}, is the first that differs")
    if found.config:
        out.line(f"configuration: differs in {', '.join(found.config)}")
    if found.file and found.file.path:
        out.line(f"/{found.file.path}: {found.file.sentence()}")
    elif found.file:
        out.line(f"every file in it is the same: {found.file.sentence()}")
    elif found.layer:
        out.note("name the image as it was released with --against, and the first file that differs is named too")


def _signature(known: Known, tag: Tag, options: argparse.Namespace, out: Output) -> int:
    if not options.registry or not options.key:
        raise UserError("--signature needs --registry REGISTRY/NAME and --key FILE")
    # Signatures need wheels that a host without Bazel may lack; the other half of this verb does not.
    from releases.verifying import verify_signature

    found = verify_signature.verify_release(
        known, tag, options.registry, options.key, options.plain_http, options.authfile
    )
    out.document(
        {
            "schema": "moet.image-verify-signature.v1",
            "tag": str(tag),
            "digest": found.digest,
            "signatures": [{"kind": kind, "digest": digest, "key": key} for kind, digest, key in found.signatures],
        }
    )
    out.line(f"{tag}: {found.digest}")
    out.table(["signed", "attestation", "key"], found.signatures)
    return 0


VERB = Verb(
    summary="build a release again and compare, or verify its signatures",
    description=DESCRIPTION,
    arguments=add_arguments,
    run=run,
    examples=(
        ("image verify dsv41:vllm0.33.0-r1", "is the commit's image the one that was released?"),
        (
            "image verify dsv41:vllm0.33.0-r1 --against REGISTRY/dsv41:vllm0.33.0-r1",
            "and if not, which file of it differs?",
        ),
        ("image verify dsv41:vllm0.33.0-r1 --signature --key moet.pub --registry REGISTRY/dsv41", "who signed it?"),
    ),
    exits=((3, "the image that was built differs from the released one"),),
)
