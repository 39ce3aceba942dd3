"""Whether an image in a registry has the signed attestations that it should have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from images.registry.client import Registry
from releases.attestations import comparison, dsse, referrers
from releases.attestations.errors import AttestationError
from releases.attestations.statement import KINDS, Statement


@dataclass(frozen=True)
class Verified:
    """An attestation that holds: its kind, the artifact's digest, the public key that signed it."""

    predicate_type: str
    digest: str
    key: Path

    @property
    def kind(self) -> str:
        """The kind as people call it."""
        return KINDS.get(self.predicate_type, self.predicate_type)


def verify_signature(
    registry: Registry,
    name: str,
    digest: str,
    keys: Sequence[Path],
    expected: Mapping[str, Statement] | None = None,
) -> list[Verified]:
    """Verifies SBOM and provenance of the image `digest` in the repository `name`.

    Args:
        registry: where the image is.
        name: its repository.
        digest: of its manifest.
        keys: files with public keys, any of which may have signed.
        expected: what the statements must say (statement.of_release of the record and the CHANGELOG), by predicate
            type; None: whatever they say about this image.

    Raises:
        AttestationError: one is missing, is signed by nobody known, is altered, or is about something else.
        RegistryError: the registry refused.
    """
    if not keys:
        where = f"{registry.address}/{name}@{digest}"
        raise AttestationError(f"{where}: no public key was given to verify with; name one with --key")
    return check(registry, name, digest, lambda envelope: dsse.verify(envelope, keys), expected)


def check(
    registry: Registry,
    name: str,
    digest: str,
    opened: Callable[[bytes], dsse.Signed],
    expected: Mapping[str, Statement] | None = None,
) -> list[Verified]:
    """As verify_signature(), where `opened` opens an envelope, and raises AttestationError for what does not hold."""
    where = f"{registry.address}/{name}@{digest}"
    attached = referrers.fetch(registry, name, digest)
    if not attached:
        gone = len(registry.referrers(name, digest, referrers.ARTIFACT_TYPE))
        lost = f"has no signature any more: {gone} are listed and were deleted from the registry"
        what = lost if gone else "has no signature at all"
        raise AttestationError(f"{where}: {what}; moet release publish signs and attaches")
    found: dict[str, Verified] = {}
    faults: list[AttestationError] = []
    for attestation in attached:
        try:
            signed = opened(attestation.envelope)
            compare(signed.statement, digest, expected)
            kind = signed.statement.predicate_type
            found.setdefault(kind, Verified(kind, attestation.descriptor.digest, signed.key))
        except AttestationError as error:
            faults.append(error)
    if missing := [kind for kind in expected or KINDS if kind not in found]:
        listed = " and ".join(KINDS.get(kind, kind) for kind in missing)
        # What a known key did not sign may be anybody's; a forged or altered one tells most.
        faults.sort(key=lambda fault: isinstance(fault, dsse.UnknownKeyError))
        why = f"an attestation there {faults[0]}" if faults else "none is attached"
        raise AttestationError(f"{where}: no {listed} that holds: {why}")
    return [found[kind] for kind in expected or KINDS]


def compare(statement: Statement, digest: str, expected: Mapping[str, Statement] | None) -> None:
    """Raises AttestationError unless a statement is about the image `digest` and says what is `expected`."""
    if statement.digest != digest:
        raise AttestationError(f"is about another image, {statement.name} {statement.digest}")
    if expected is None or statement.predicate_type not in expected:
        return
    wanted = expected[statement.predicate_type]
    if statement.name != wanted.name:
        raise AttestationError(f"calls the image {statement.name}, {wanted.name} was expected")
    if difference := comparison.difference(statement, wanted):
        raise AttestationError(f"says something else than the release's record: {difference}")
