"""Small OCI layouts, made in a test, for the programs that only move images about."""

import gzip
import io
import json
import random
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any


def noise(seed: int, size: int) -> bytes:
    """`size` bytes that no compression shrinks, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def make_layout(
    directory: Path, name: str, layers: Sequence[dict[str, bytes]], environment: Sequence[str] = ()
) -> Path:
    """Write an OCI layout of one image, `name`, with a layer for each {path: contents}, and return its directory."""
    (directory / "blobs" / "sha256").mkdir(parents=True)
    diff_ids, descriptors = [], []
    for files in layers:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, contents in files.items():
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(contents), 0o755
                tar.addfile(member, io.BytesIO(contents))
        diff_ids.append(f"sha256:{sha256(raw.getvalue()).hexdigest()}")
        blob = gzip.compress(raw.getvalue(), compresslevel=1, mtime=0)
        descriptors.append(_write(directory, blob, "application/vnd.oci.image.layer.v1.tar+gzip"))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": list(environment)},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _write(directory, _dump(config), "application/vnd.oci.image.config.v1+json"),
        "layers": descriptors,
    }
    entry = _write(directory, _dump(manifest), manifest["mediaType"])
    entry["annotations"] = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    (directory / "index.json").write_bytes(_dump({"schemaVersion": 2, "manifests": [entry]}))
    (directory / "oci-layout").write_bytes(_dump({"imageLayoutVersion": "1.0.0"}))
    return directory


def name_of(directory: Path) -> str:
    """The name that the layout in `directory` was made with."""
    index = json.loads((directory / "index.json").read_bytes())
    return str(index["manifests"][0]["annotations"]["io.containerd.image.name"])


def _write(directory: Path, data: bytes, media_type: Any) -> dict[str, Any]:
    digest = sha256(data).hexdigest()
    (directory / "blobs" / "sha256" / digest).write_bytes(data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _dump(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
