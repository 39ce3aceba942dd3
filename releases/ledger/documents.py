"""The documents about an image, made from its layout; prints their SHA-256 as one JSON object.

usage: documents.py LAYOUT
"""

import datetime
import hashlib
import json
import sys
import tempfile
from pathlib import Path

from releases.attestations import dsse, provenance, sbom, statement
from releases.changelog.entry import Entry
from releases.cutting import layout_record
from releases.ledger.artifacts import DOCUMENTS
from releases.record import Record
from releases.tag import Tag
from tools.cli.errors import UserError

# RFC 8410's private key of 32 zero bytes: the same key in every run, and nobody's.
_KEY = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
-----END PRIVATE KEY-----
"""


def make(record: Record) -> dict[str, bytes]:
    """Returns the documents by name, as publishing the image would make them. Raises UserError."""
    manifest = record.moet
    entry = Entry(
        tag=Tag.parse(manifest.tag.removesuffix("-dev")),
        date=datetime.date(2026, 1, 1),
        summary="",
        digest=record.digest,
        image_id=record.image_id,
        commit=manifest.commit or "0" * 40,
        base=f"{manifest.base.name} {manifest.base.version} {manifest.base.commit}",
        steps=tuple((step.number, step.name) for step in manifest.steps),
        follows=None,
        rollback=None,
        rollback_switches=(),
    )
    statements = statement.of_release(entry, record)
    of_sbom, of_provenance = (statements[kind].encode() for kind in (sbom.PREDICATE, provenance.PREDICATE))
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        key.touch(0o600)
        key.write_text(_KEY)
        envelope = dsse.sign(of_provenance, key)
    return dict(zip(DOCUMENTS, (sbom.sbom(record), of_sbom, of_provenance, envelope), strict=True))


def main() -> int:
    """Runs the command line above; returns the exit status."""
    try:
        made = make(layout_record.read(Path(sys.argv[1])))
    except UserError as error:
        print(f"documents: {error}", file=sys.stderr)
        return 1
    print(json.dumps({name: "sha256:" + hashlib.sha256(data).hexdigest() for name, data in made.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
