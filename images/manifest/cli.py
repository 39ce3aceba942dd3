"""Writes an image's manifest, labels and environment.

  python -m images.manifest.cli --line line.json --overlay overlay.json FOLDER --pins pins.json
      --layer overlay overlay.files.json --layer runtime runtime.files.json --site /usr/local/lib/...
      --manifest manifest.json --labels labels.json --env env.json

Exits with 1 and one line a problem on stderr where the inputs make no manifest; nothing is written then.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from images.manifest import builder, inputs, labels, model, reads


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        outputs = _build(options)
    except inputs.ManifestError as error:
        for problem in error.problems:
            print(f"image manifest: {problem}", file=sys.stderr)
        return 1
    for path, data in outputs.items():
        _write(path, data)
    return 0


def _build(options: argparse.Namespace) -> dict[Path, bytes]:
    line = inputs.read(inputs.Line, options.line)
    if options.status:
        line = inputs.stamped(line, options.status)
    overlays = [inputs.read(inputs.Overlay, Path(path)) for path, _ in options.overlay]
    pins = [pin for path in options.pins for pin in inputs.read_pins(path)]
    files = [file for kind, listing in options.layer for file in inputs.read_layer(kind, Path(listing))]
    manifest = builder.build(line, options.site, overlays, pins, files)
    for overlay, (_, folder) in zip(overlays, options.overlay, strict=True):
        problems = reads.problems(manifest, overlay, Path(folder))
        if problems:
            raise inputs.ManifestError(*problems)
    data = model.dumps(manifest)
    digest = hashlib.sha256(data).hexdigest()
    return {
        options.manifest: data,
        options.labels: model.dumps(labels.labels(line, manifest, digest)),
        options.env: model.dumps({model.ANCHOR: digest}),
    }


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    beside.rename(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "images.manifest.cli", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--line", type=Path, required=True, help="the line's data")
    parser.add_argument("--status", type=Path, help="Bazel's stable status file: the image is a release of its commit")
    parser.add_argument(
        "--overlay",
        nargs=2,
        action="append",
        default=[],
        metavar=("JSON", "FOLDER"),
        help="the patch engine's overlay.json and folder",
    )
    parser.add_argument("--pins", type=Path, action="append", default=[], help="a JSON list of pins")
    parser.add_argument(
        "--layer",
        nargs=2,
        action="append",
        default=[],
        metavar=("KIND", "LISTING"),
        help="a layer whose files are attested: overlay, kernel or runtime, and its .files.json",
    )
    parser.add_argument("--site", required=True, help="the image's site folder, absolute")
    parser.add_argument("--manifest", type=Path, required=True, help="written: the manifest")
    parser.add_argument("--labels", type=Path, required=True, help="written: the image's labels")
    parser.add_argument("--env", type=Path, required=True, help="written: the image's environment")
    return parser


if __name__ == "__main__":
    sys.exit(main())
