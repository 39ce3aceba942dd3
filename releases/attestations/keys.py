"""ed25519 keys of the user's own: the private one that signs, public ones that verify."""

import importlib.util
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from releases.attestations.errors import AttestationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.signer import Key

PASSPHRASE = "MOET_KEY_PASSPHRASE"
_MAKE = "make one with: openssl genpkey -algorithm ed25519 -out KEY && openssl pkey -in KEY -pubout -out KEY.pub"
_MOST = 1 << 16


def private(path: Path) -> "Ed25519PrivateKey":
    """Reads a private key, PEM (PKCS #8) or OpenSSH; an encrypted one with the passphrase in MOET_KEY_PASSPHRASE.

    Raises AttestationError: not readable, readable by others, no key, another kind of key, a wrong passphrase.
    """
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    data = _read(path, secret=True)
    if b"PRIVATE KEY-----" not in data:
        what = "a public key, the private one signs" if _looks_public(data) else "no private key (PEM or OpenSSH)"
        raise AttestationError(f"{path}: is {what}; {_MAKE}")
    ssh = b"OPENSSH PRIVATE KEY" in data
    load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    passphrase = os.environ.get(PASSPHRASE) or None
    if ssh and b"bcrypt" in _unwrapped(data) and importlib.util.find_spec("bcrypt") is None:
        raise AttestationError(
            f"{path}: is encrypted as OpenSSH does it, which needs the Python package bcrypt: install it, or take a key"
            " in PEM: openssl genpkey -algorithm ed25519 -aes256 -out KEY"
        )
    try:
        try:
            key = load(data, passphrase.encode() if passphrase else None)
        except TypeError:
            if passphrase is None:
                raise AttestationError(f"{path}: is encrypted; give its passphrase in {PASSPHRASE}") from None
            # A passphrase that the key does not need.
            key = load(data, None)
    except (ValueError, UnsupportedAlgorithm):
        if passphrase is None and ssh and b"bcrypt" in _unwrapped(data):
            raise AttestationError(f"{path}: is encrypted; give its passphrase in {PASSPHRASE}") from None
        wrong = f"; is the passphrase in {PASSPHRASE} right?" if passphrase else ""
        raise AttestationError(f"{path}: cannot be read as a private key{wrong}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise AttestationError(f"{path}: is {_kind(key)}, an ed25519 key is expected; {_MAKE}")
    return key


def public(path: Path) -> "Key":
    """Reads a public key, PEM or OpenSSH's one line (KEY.pub). Raises AttestationError as private() does."""
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from securesystemslib.signer import SSlibKey

    data = _read(path, secret=False)
    if b"PRIVATE KEY-----" in data:
        raise AttestationError(f"{path}: is a private key; verify with the public one, and keep this one secret")
    load = serialization.load_pem_public_key if b"-----BEGIN" in data else serialization.load_ssh_public_key
    try:
        key = load(data)
    except (ValueError, UnsupportedAlgorithm):
        raise AttestationError(f"{path}: is no public key in PEM or OpenSSH's form; {_MAKE}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise AttestationError(f"{path}: is {_kind(key)}, an ed25519 key is expected; {_MAKE}")
    return SSlibKey.from_crypto(key)


def _need_cryptography() -> None:
    # The self-contained moet is pure Python and does not carry it.
    if importlib.util.find_spec("cryptography") is None:
        raise AttestationError(
            "signatures need the Python package cryptography, which is not here: pip install cryptography (Debian:"
            " apt-get install python3-cryptography)"
        )


def _read(path: Path, secret: bool) -> bytes:
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(_MOST)
    except OSError as error:
        raise AttestationError(f"{path}: {error.strerror}; {_MAKE}") from None
    if secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AttestationError(
            f"{path}: others may read this private key (mode {stat.S_IMODE(mode):o}); chmod 600 {path}, and make a"
            " new one if others could have taken it"
        )
    return data


def _looks_public(data: bytes) -> bool:
    return b"PUBLIC KEY-----" in data or data.startswith(b"ssh-")


def _unwrapped(data: bytes) -> bytes:
    import base64

    try:
        return base64.b64decode(b"".join(line for line in data.splitlines() if not line.startswith(b"-----")))
    except ValueError:
        return b""


def _kind(key: object) -> str:
    name = type(key).__name__.lstrip("_").removesuffix("PrivateKey").removesuffix("PublicKey")
    return {"RSA": "an RSA key", "EC": "an EC key", "EllipticCurve": "an EC key"}.get(name, f"a key of the kind {name}")
