"""Push an image of an OCI layout to a registry, its digests kept. A release's tag is never moved."""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.engine import layout, reference
from images.engine.errors import EngineError
from images.engine.layout import Image
from images.engine.reference import Reference
from images.registry.client import MANIFEST, Registry
from images.registry.push_image import Progress, Pushed, TagTakenError, push_image
from tools.cli.errors import UserError
from tools.cli.output import Output

SCHEMA = "moet.image-push.v1"


@dataclass(frozen=True)
class PushResult:
    """What a push did: `pushed` is what went over, `replaced` the digest that the tag stood for before, if another."""

    target: Reference
    pushed: Pushed
    layers: int
    replaced: str | None

    def document(self, seconds: float) -> dict[str, Any]:
        """The result as JSON has it, with the wall time."""
        return {
            "schema": SCHEMA,
            "reference": str(self.target),
            "manifest_digest": self.pushed.manifest.digest,
            "layers": self.layers,
            "blobs_sent": self.pushed.sent,
            "blobs_present": self.pushed.present,
            "bytes_sent": self.pushed.bytes_sent,
            "replaced": self.replaced,
            "seconds": round(seconds, 3),
        }

    def lines(self, seconds: float) -> list[str]:
        """The result in words, one fact a line."""
        sent = f"{self.layers} layers in {seconds:.1f} s, {self.pushed.bytes_sent / 1e6:,.1f} MB sent"
        lines = [f"{self.target}@{self.pushed.manifest.digest}", sent]
        if self.replaced:
            lines.append(f"the tag moved: it stood for {self.replaced}")
        return lines


def push(registry: Registry, image: Image, target: Reference, progress: Progress) -> PushResult:
    """Makes `target` the image, in the registry that it names.

    Raises:
        TagTakenError: the tag is a release's and stands for another image there; nothing was sent.
        RegistryError: the registry refused, or holds another manifest afterwards.
    """
    replaced = None
    try:
        pushed = push_image(registry, target.name, target.tag, image, progress)
    except TagTakenError:
        if target.is_release:
            raise
        found = registry.resolve(target.name, target.tag)
        replaced = found.digest if found else None
        pushed = push_image(registry, target.name, image.manifest.digest, image, progress)
        registry.push_manifest(target.name, target.tag, MANIFEST, image.manifest.path.read_bytes())
    return PushResult(target, pushed, len(image.layers), replaced)


def push_layout(
    directory: Path, ref: str | None, target: str, plain_http: bool, authfile: Path | None, out: Output
) -> PushResult:
    """Pushes the image that the layout calls `ref` (None: its only one) to REGISTRY/NAME:TAG; prints what was done.

    Raises:
        UserError: no such image, no such registry, or as push() does.
    """
    start = time.monotonic()
    where = reference.parse(target)
    if not where.registry:
        raise EngineError(f"{target!r} names no registry; write REGISTRY/{target}")
    image = layout.read(directory, ref)
    with Registry(where.registry, plain_http, authfile) as registry, out.progress() as bar:
        result = push(registry, image, where, bar)
    seconds = time.monotonic() - start
    for line in result.lines(seconds):
        out.line(line)
    out.document(result.document(seconds))
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what says how a registry is spoken to."""
    parser.add_argument(
        "--plain-http", action="store_true", help="allow plain HTTP and certificates that do not verify"
    )
    parser.add_argument(
        "--authfile",
        type=Path,
        metavar="FILE",
        help="credentials, as skopeo login writes them (default: where podman, skopeo and docker keep theirs)",
    )


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="push", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help="directory of the OCI image layout")
    parser.add_argument("--ref", required=True, help="the image's name in the layout, NAME:TAG")
    add_arguments(parser)
    parser.add_argument(
        "--tls-verify", choices=("true", "false"), default="true", help="false is the same as --plain-http"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("target", metavar="REF", help="where to: REGISTRY/NAME:TAG")
    options = parser.parse_args(arguments)
    plain_http = options.plain_http or options.tls_verify == "false"
    try:
        push_layout(options.layout, options.ref, options.target, plain_http, options.authfile, Output(options.json))
    except UserError as error:
        print(f"push: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("push: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
