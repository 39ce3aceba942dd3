"""Verifying the signatures of a release in a registry."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.engine import reference
from images.registry.client import Registry
from releases.attestations import statement, verify
from releases.known import Known
from releases.tag import Tag
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Signed:
    """What holds: `signatures` are (kind, digest of the attestation, file of the key that signed)."""

    digest: str
    signatures: tuple[tuple[str, str, str], ...]


def verify_release(
    known: Known, tag: Tag, text: str, keys: Sequence[Path], plain_http: bool, authfile: Path | None
) -> Signed:
    """Verifies what is attached to the digest of `tag` in the repository that `text` (REGISTRY/NAME[:TAG]) names.

    Raises UserError where something is missing, not signed by one of `keys`, or says other things than the release.
    """
    named = reference.parse(text if ":" in text.rpartition("/")[2] else f"{text}:{tag.name}")
    if not named.registry:
        raise UserError(f"{text!r}: expected REGISTRY/NAME, the registry with a dot, a port or as localhost")
    entry, record = known.entry(tag), known.record(tag)
    expected = statement.of_release(entry, record)
    with Registry(named.registry, plain_http, authfile) as registry:
        found = verify.verify_signature(registry, named.name, entry.digest, keys, expected)
    return Signed(entry.digest, tuple((one.kind, one.digest, str(one.key)) for one in found))
