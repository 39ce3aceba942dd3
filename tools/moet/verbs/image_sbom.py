"""moet image sbom."""

import argparse
import json
from pathlib import Path

from images.inspect import arguments, source
from releases.attestations import sbom
from tools.cli.output import Output
from tools.files import atomic
from tools.moet.verb import Verb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("image", metavar="X", help="a release's tag, a digest, an OCI layout, a tar, a reference")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the bill to this file (default: to stdout)")
    arguments.add(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Runs the verb; returns the exit status."""
    view = arguments.view(options.image, options, arguments.known(options))
    bill = sbom.document(view.manifest, view.digest, view.image_id, view.config.get("created"))
    if options.out:
        atomic.write(options.out, bill)
        out.line(f"{options.out}: {len(view.manifest.pins)} components of {view.source}")
        out.document({"schema": "moet.image-sbom.v1", "file": str(options.out), "components": len(view.manifest.pins)})
        return 0
    # The bill is JSON, asked for or not; CycloneDX allows no key "schema" in it.
    Output(as_json=True).document(json.loads(bill))
    return 0


VERB = Verb(
    summary="print an image's software bill of materials (CycloneDX)",
    description=f"""\
Prints the bill of materials of an image as CycloneDX 1.6 JSON, with or without --json: every pinned wheel, Debian
package and source with its package URL and the SHA-256 of the file that was fetched. It is made from the manifest in
the image; the same image gives the same bytes. moet release publish signs the same document.

{source.ORDER}""",
    arguments=add_arguments,
    run=run,
    examples=(
        ("image sbom dsv41:vllm0.33.0-r1", "of a release, from its record"),
        ("image sbom ./layout --out sbom.json", "of a layout, into a file"),
    ),
)
