"""moet release publish."""

import argparse
from pathlib import Path

from images.engine import reference
from images.inspect import arguments
from images.registry.client import Registry
from releases.known import Known
from releases.publishing.publish import Publisher, document, line_of
from releases.tag import Tag
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.cli.output import Output
from tools.moet.verb import Verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "tags",
        metavar="TAG",
        nargs="*",
        help="releases of one line (default: those of the line that NAME ends with which are not published whole)",
    )
    parser.add_argument(
        "--registry", metavar="HOST/NAME", required=True, help="the repository that they go to, one for each line"
    )
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        required=True,
        help="ed25519 private key that signs, PEM or OpenSSH; the passphrase of an encrypted one is taken from"
        " MOET_KEY_PASSPHRASE",
    )
    parser.add_argument(
        "--layout",
        type=Path,
        metavar="DIR",
        action="append",
        default=[],
        help="take the image from this OCI layout, if it has the release's digest; may be repeated (default: Bazel's"
        " last build if it has it, else the commit is built)",
    )
    arguments.add_registry(parser)
    parser.add_argument(
        "--deep", action="store_true", help="read every layer back and hash it; without, that the registry has it"
    )
    parser.add_argument("--dry-run", action="store_true", help="look at everything, say what would be done, do nothing")


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb."""
    tags = [Tag.parse(text) for text in options.tags]
    known = Known.find(options.tree)
    root = known.need_tree("moet release publish")
    place = reference.parse(f"{options.registry}:tag")
    if not place.registry:
        raise UserError(f"--registry {options.registry!r}: expected HOST/NAME, for example 127.0.0.1:5000/dsv41")
    line = line_of(known, tags, place.name)
    with Registry(place.registry, options.plain_http, options.authfile) as registry:
        how = {"dry_run": options.dry_run, "deep": options.deep}
        publisher = Publisher(Git(root), registry, place.name, options.key, options.layout, out, **how)
        published = publisher.publish(known, tags or publisher.missing(known, line))
    out.document(document(published, place.repository, options.dry_run))
    if not published:
        out.line(f"every release of {line} is published in {place.repository}")
        return 0
    rows = [(one.tag, step.name, step.state, step.detail) for one in published for step in one.steps]
    out.table(["release", "step", "state", "what"], rows)
    names = " ".join(one.tag.git for one in published)
    if not options.dry_run:
        out.line(f"The git tags are in this clone alone until you push them: git push origin {names}")
    return 0


VERB = Verb(
    summary="publish releases: git tag, image, SBOM and provenance, signed",
    description="""\
For each release of CHANGELOG.md: its entry and record are checked; the annotated git tag is made; the image is built
of the release's commit, held against the digest in CHANGELOG.md, and pushed; SBOM (CycloneDX) and provenance (SLSA)
are signed and attached to it; and all of it is read back and verified.

Each step looks first: what is there already stays, and nothing there is ever moved or replaced. A publish that was
interrupted is run again. Two in one clone wait for each other. git push is left to you.

HOST/NAME is the repository of one line. The release dsv41:vllm0.33.0-r1 becomes HOST/NAME:vllm0.33.0-r1. Where the
registry lacks the referrers API, the attestations are listed by the tag sha256-<digest> beside it.""",
    arguments=add_arguments,
    run=run,
    examples=(
        ("release publish --registry REGISTRY/dsv41 --key KEY", "whatever of dsv41 is not published yet"),
        ("release publish dsv41:vllm0.33.0-r1 --registry REGISTRY/dsv41 --key KEY --dry-run", "what would be done"),
    ),
)
