"""Envelopes (DSSE) around statements: signed with one key, verified with any of several."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from releases.attestations import keys
from releases.attestations.errors import AttestationError
from releases.attestations.statement import PAYLOAD_TYPE, Statement

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import Key

MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"


class AlteredError(AttestationError):
    """A known key signed it, and it is not what that key signed."""


class UnknownKeyError(AttestationError):
    """None of the given keys signed it."""


@dataclass(frozen=True)
class Signed:
    """A statement and the file of the public key that it verified with."""

    statement: Statement
    key: Path


def sign(statement: bytes, key: Path) -> bytes:
    """Puts a statement into an envelope signed with the private key; the same bytes every time.

    Raises AttestationError where the key cannot be used.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(keys.private(key)))
    return json.dumps(envelope.to_dict(), sort_keys=True, separators=(",", ":")).encode()


def verify(envelope: bytes, trusted: Sequence[Path]) -> Signed:
    """The statement in an envelope that one of the public keys signed.

    Raises:
        UnknownKeyError: none of these keys signed it.
        AlteredError: the signature of one of them is not over this payload.
        AttestationError: it is no envelope, or holds no statement.
    """
    known = {key.keyid: (key, path) for path in trusted for key in (keys.public(path),)}
    statement, identifier = _open(_read(envelope), {keyid: key for keyid, (key, _) in known.items()})
    return Signed(statement, known[identifier][1])


def verify_own(envelope: bytes, private: Path) -> Signed:
    """The statement in an envelope that this private key's owner signed. Raises as verify() does."""
    from securesystemslib.signer import CryptoSigner

    key = CryptoSigner(keys.private(private)).public_key
    return Signed(_open(_read(envelope), {key.keyid: key})[0], private)


def _read(envelope: bytes) -> "Envelope":
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import FormatError

    try:
        document: Any = json.loads(envelope)
        read = Envelope.from_dict(document)
        if all(isinstance(text, str) for text in (read.payload_type, *read.signatures)):
            return read
    except (ValueError, KeyError, TypeError, AttributeError, FormatError, RecursionError):
        pass
    raise AttestationError("what is attached is no signed envelope (DSSE)")


def _open(envelope: "Envelope", known: "dict[str, Key]") -> tuple[Statement, str]:
    from securesystemslib.exceptions import VerificationError

    ours = [known[identifier] for identifier in envelope.signatures if identifier in known]
    if not ours:
        signers = ", ".join(identifier[:12] for identifier in sorted(envelope.signatures)) or "nobody"
        expected = ", ".join(identifier[:12] for identifier in sorted(known))
        raise UnknownKeyError(f"is signed by an unknown key ({signers}); the given keys are {expected}")
    try:
        accepted = envelope.verify(ours, 1)
    except VerificationError:
        raise AlteredError("is altered: its signature does not fit its content") from None
    if envelope.payload_type != PAYLOAD_TYPE:
        raise AttestationError(f"holds {envelope.payload_type!r}, {PAYLOAD_TYPE} was expected")
    return Statement.decode(envelope.payload), next(iter(accepted))
