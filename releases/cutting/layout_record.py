"""The record of an image that lies in an OCI layout."""

import hashlib
import io
import tarfile
from pathlib import Path

from images.engine import layout
from images.manifest import model
from releases.record import Record
from tools.cli.errors import UserError


def read(folder: Path) -> Record:
    """Reads image, configuration and Moet's manifest out of a layout, and checks that they belong together.

    Raises UserError (or EngineError, for the layout's own faults) where the layout holds no image of Moet's.
    """
    image = layout.read(folder)
    # The manifest's layer is the last that an image gets.
    for one in reversed(image.layers):
        data = one.blob.path.read_bytes() if one.blob.size < 1 << 24 else b""
        if not data:
            continue
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != one.blob.digest:
            raise UserError(f"{folder}: blob {one.blob.digest} does not have the bytes its name says; build it again")
        manifest = _member(data, model.PATH.lstrip("/"))
        if manifest is not None:
            record = Record(image.manifest.path.read_bytes(), image.config.path.read_bytes(), manifest)
            record.check(str(folder))
            return record
    raise UserError(f"{folder}: no layer has {model.PATH}: this is no image of Moet's")


def _member(data: bytes, path: str) -> bytes | None:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
            for member in tar:
                if member.name == path and member.isreg():
                    found = tar.extractfile(member)
                    return found.read() if found else None
    except (tarfile.TarError, EOFError, OSError):
        return None
    return None
