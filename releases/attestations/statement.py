"""in-toto statements (v1): what is said about which image."""

import json
from dataclasses import dataclass
from typing import Any, Self

from releases.attestations import provenance, sbom
from releases.attestations.errors import AttestationError
from releases.changelog.entry import Entry
from releases.record import Record

TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
# What every release has: predicate type to its name for people.
KINDS = {sbom.PREDICATE: "SBOM", provenance.PREDICATE: "provenance"}


@dataclass(frozen=True)
class Statement:
    """`predicate`, of `predicate_type`, about the image `name` with `digest` (sha256:<hex>)."""

    name: str
    digest: str
    predicate_type: str
    predicate: dict[str, Any]

    def encode(self) -> bytes:
        """The statement as the one JSON text that stands for it."""
        algorithm, _, value = self.digest.partition(":")
        document = {
            "_type": TYPE,
            "subject": [{"name": self.name, "digest": {algorithm: value}}],
            "predicateType": self.predicate_type,
            "predicate": self.predicate,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reads a statement about one image. Raises AttestationError where it is none."""
        try:
            document = json.loads(data)
            (subject,) = document["subject"]
            name, digest = subject["name"], subject["digest"]["sha256"]
            kind, predicate = document["predicateType"], document["predicate"]
            known = document["_type"] == TYPE and isinstance(name, str) and isinstance(digest, str)
            if known and isinstance(kind, str) and isinstance(predicate, dict):
                return cls(name, f"sha256:{digest}", kind, predicate)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise AttestationError("the signed payload is no in-toto statement (v1) about one image")


def of_release(entry: Entry, record: Record) -> dict[str, Statement]:
    """What is signed for a release: predicate type to statement."""
    predicates = {
        sbom.PREDICATE: json.loads(sbom.sbom(record)),
        provenance.PREDICATE: provenance.provenance(entry, record),
    }
    return {kind: Statement(str(entry.tag), record.digest, kind, predicate) for kind, predicate in predicates.items()}
