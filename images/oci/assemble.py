"""Layers, labels and run configuration to an OCI image layout.

usage: assemble.py --spec SPEC.json --labels LABELS.json --out FOLDER --digest FILE [--env-file ENV.json]...
           --layer PREFIX...

SPEC.json: {"reference", "env", "entrypoint", "cmd", "user", "workdir",
"replaces": {layer name: owner whose files it may replace}}. Each PREFIX stands for the files that a
layer writer made; blobs are linked into the layout, not copied, where the file system allows.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.oci import blob, layer

# Docker's overlay2 and podman fail near 128 layers; fewer load faster.
MAX_LAYERS = 24
CREATED = "org.opencontainers.image.created"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Part:
    """A layer of the image to be: its descriptor, its entries and the file that holds its blob."""

    descriptor: layer.Layer
    entries: list[layer.Entry]
    path: Path


def read_part(prefix: str) -> Part:
    """Reads what a layer writer left at `prefix`."""
    return Part(
        layer.read_descriptor(Path(prefix + ".json")),
        layer.read_listing(Path(prefix + ".files.json")),
        Path(prefix + ".tar.gz"),
    )


def encode(value: object) -> bytes:
    """Returns the one JSON text that stands for `value`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def collisions(parts: Iterable[Part], replaces: dict[str, str]) -> list[str]:
    """Returns a line for each path that two packages install with different bytes.

    `replaces` maps a layer's name to the owner whose files it replaces on purpose.
    """
    seen: dict[str, layer.Entry] = {}
    lines = []
    for part in parts:
        allowed = replaces.get(part.descriptor.name)
        for entry in part.entries:
            other = seen.get(entry.path)
            same = other is None or (entry.type, entry.content) == (other.type, other.content)
            if other is not None and not same and other.owner != allowed:
                lines.append(f"/{entry.path}: {other.owner} and {entry.owner} install different bytes")
            seen[entry.path] = entry
    return lines


def image_config(spec: dict[str, Any], layers: Sequence[layer.Layer], labels: dict[str, str]) -> dict[str, Any]:
    """Returns the OCI image configuration (image-spec v1.0, config.md); its time is that of the labels."""
    created = labels[CREATED]
    return {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": spec["user"],
            "Env": [f"{name}={value}" for name, value in sorted(spec["env"].items())],
            "Entrypoint": spec["entrypoint"],
            "Cmd": spec["cmd"],
            "WorkingDir": spec["workdir"],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
        "history": [
            {"created": created, "created_by": f"moet {one.name}", "comment": one.comment} for one in layers
        ],
    }


def image_manifest(config: tuple[str, int], layers: Sequence[layer.Layer], labels: dict[str, str]) -> dict[str, Any]:
    """Returns the OCI image manifest (image-spec v1.0, manifest.md); `config` is digest and size."""
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": config[0], "size": config[1]},
        "layers": [{"mediaType": one.mediaType, "digest": one.digest, "size": one.size} for one in layers],
        "annotations": {key: value for key, value in labels.items() if key.startswith("org.opencontainers.image.")},
    }


def image_index(manifest: tuple[str, int], reference: str) -> dict[str, Any]:
    """Returns the layout's index.json, which gives the manifest its reference NAME:TAG."""
    return {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            {
                "mediaType": MANIFEST_TYPE,
                "digest": manifest[0],
                "size": manifest[1],
                "platform": {"architecture": "amd64", "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": reference,
                    "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
                },
            }
        ],
    }


def place(source: Path, dest: Path) -> None:
    """Puts a blob into the layout: a hard link, or a copy where links cannot be had."""
    source = source.resolve()
    try:
        os.link(source, dest)
    except OSError:
        shutil.copyfile(source, dest)


def assemble(
    out: Path, spec: dict[str, Any], parts: Sequence[Part], labels: dict[str, str]
) -> str:
    """Writes the layout into `out` (an empty or missing folder) and returns the manifest's digest.

    Raises LayerError on colliding packages, too many layers or labels without a time, before anything is written.
    """
    if len(parts) > MAX_LAYERS:
        raise layer.LayerError(f"{len(parts)} layers; at most {MAX_LAYERS} are allowed: put groups of wheels together")
    if CREATED not in labels:
        raise layer.LayerError(f"the labels lack {CREATED}: give the line's base its release time")
    clashes = collisions(parts, spec["replaces"])
    if clashes:
        raise layer.LayerError("\n".join([*clashes, "drop one of each pair in the line's data"]))
    layers = [part.descriptor for part in parts]
    blobs = out / "blobs/sha256"
    blobs.mkdir(parents=True)
    for part in parts:
        place(part.path, blobs / part.descriptor.digest.removeprefix("sha256:"))
    config = blob.write(blobs, encode(image_config(spec, layers, labels)))
    manifest = blob.write(blobs, encode(image_manifest(config, layers, labels)))
    Path(out, "oci-layout").write_bytes(encode({"imageLayoutVersion": "1.0.0"}))
    Path(out, "index.json").write_bytes(encode(image_index(manifest, spec["reference"])))
    return manifest[0]


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(fromfile_prefix_chars="@")
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layer", action="append", required=True)
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--env-file", type=Path, action="append", default=[])
    parser.add_argument("--digest", type=Path, required=True)
    args = parser.parse_args(argv)
    spec = json.loads(args.spec.read_text())
    for path in args.env_file:
        spec["env"].update(json.loads(path.read_text()))
    try:
        digest = assemble(args.out, spec, [read_part(p) for p in args.layer], json.loads(args.labels.read_text()))
    except (layer.LayerError, OSError) as error:
        print(f"image {spec['reference']}: {error}", file=sys.stderr)
        return 1
    args.digest.write_text(digest + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
