"""Holds the RECORD of installed projects (PEP 376) against the manifest and the launcher.

RECORD is what scanners and pip compare with: it must tell of the overlay's files, not of the wheel's.
"""

import base64
import binascii
import csv
import posixpath

from images.manifest import model
from serving.runtime import files
from serving.runtime.mismatch import Mismatch, inside

LAUNCHER = "/usr/local/bin/vllm"


def check(root: str, manifest: model.Manifest) -> list[Mismatch]:
    """Every overlaid file, and the launcher, for which no RECORD has the right entry."""
    base = manifest.base
    projects = {(base.name, base.version), *((o.project, o.version) for o in manifest.overlays)}
    records = sorted(model.record_path(manifest.site, name, version) for name, version in projects)
    mismatches: list[Mismatch] = []
    entries: dict[str, str] = {}
    for record in records:
        try:
            entries |= _read(root, record, manifest.site)
        except OSError as error:
            mismatches.append(
                Mismatch("record", record, "the RECORD of an installed wheel", str(error.strerror))
            )
        except (ValueError, csv.Error) as error:
            mismatches.append(Mismatch("record", record, "the RECORD of an installed wheel", str(error)))
    if mismatches:
        return mismatches
    for file in manifest.files:
        if file.kind == "overlay" and file.path not in records:
            expected = files.content(file.sha256, file.size)
            found = entries.get(file.path, "no entry")
            if found != expected:
                mismatches.append(Mismatch("record", f"RECORD of {file.path}", expected, found))
    expected = entries.get(LAUNCHER, "an entry in RECORD")
    found = files.describe(root, LAUNCHER)
    if found != expected:
        mismatches.append(Mismatch("record", LAUNCHER, expected, found))
    return mismatches


def _read(root: str, record: str, site: str) -> dict[str, str]:
    with open(inside(root, record), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == 3 and row[1] and row[2]]
    return {posixpath.normpath(f"{site}/{path}"): _content(digest, size) for path, digest, size in rows}


def _content(digest: str, size: str) -> str:
    algorithm, _, value = digest.partition("=")
    try:
        raw = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        count = int(size)
    except (binascii.Error, ValueError):
        raise ValueError(f"a malformed entry: {digest},{size}") from None
    return files.content(raw.hex(), count) if algorithm == "sha256" else digest
