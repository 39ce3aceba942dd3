"""Keys and envelopes: which are taken, and what is said of those that are not."""

import base64
import importlib.util
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from releases.attestations import dsse, keys
from releases.attestations.conftest import Keys
from releases.attestations.errors import AttestationError
from releases.attestations.statement import Statement

STATEMENT = Statement("toy:b1-r1", "sha256:" + "1" * 64, "https://cyclonedx.org/bom", {"a": 1})
PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
OPENSSH = serialization.PrivateFormat.OpenSSH


def refuses(path: Path, message: str) -> None:
    with pytest.raises(AttestationError, match=message) as caught:
        keys.private(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def secret(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_one_key_in_all_forms_signs_the_same_bytes(ours: Keys) -> None:
    envelopes = {dsse.sign(STATEMENT.encode(), path) for path in (ours.private, ours.ssh_private) for _ in range(2)}
    (envelope,) = envelopes
    for path in (ours.public, ours.ssh_public):
        assert dsse.verify(envelope, [path]) == dsse.Signed(STATEMENT, path)
    assert dsse.verify_own(envelope, ours.ssh_private).statement == STATEMENT


def test_the_signature_is_dsses(ours: Keys) -> None:
    """Put together here by the letter of DSSE, and verified without the library that signed."""
    envelope = json.loads(dsse.sign(STATEMENT.encode(), ours.private))
    payload = base64.b64decode(envelope["payload"])
    assert payload == STATEMENT.encode() and envelope["payloadType"] == "application/vnd.in-toto+json"
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d %b" % (len(payload), payload)
    (signature,) = envelope["signatures"]
    public = serialization.load_pem_public_key(ours.public.read_bytes())
    assert isinstance(public, Ed25519PublicKey)
    public.verify(base64.b64decode(signature["sig"]), signed)


def test_one_of_several_keys_is_enough(ours: Keys, theirs: Keys) -> None:
    envelope = dsse.sign(STATEMENT.encode(), ours.private)
    assert dsse.verify(envelope, [theirs.public, ours.ssh_public]).key == ours.ssh_public
    with pytest.raises(dsse.UnknownKeyError, match="is signed by an unknown key"):
        dsse.verify(envelope, [theirs.public])


def test_altered_payload_or_signature(ours: Keys, theirs: Keys) -> None:
    envelope = json.loads(dsse.sign(STATEMENT.encode(), ours.private))
    other = json.loads(dsse.sign(STATEMENT.encode() + b" ", ours.private))
    foreign = json.loads(dsse.sign(STATEMENT.encode(), theirs.private))
    signature = envelope["signatures"][0]
    for changed in (
        {"payload": other["payload"]},
        {"payloadType": "text/plain"},
        {"signatures": [{**signature, "sig": foreign["signatures"][0]["sig"]}]},
        {"signatures": [{**signature, "sig": ""}]},
    ):
        with pytest.raises(dsse.AlteredError, match="its signature does not fit its content"):
            dsse.verify(json.dumps({**envelope, **changed}).encode(), [ours.public])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"payload": 1, "payloadType": "a", "signatures": []}',
        b'{"payload": "", "payloadType": "a", "signatures": [{"keyid": 1, "sig": "AA=="}]}',
        b'{"payload": "", "payloadType": "a", "signatures": [%b, %b]}' % ((b'{"keyid": "a", "sig": "AA=="}',) * 2),
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_envelope(ours: Keys, text: bytes) -> None:
    with pytest.raises(AttestationError, match="what is attached is no signed envelope"):
        dsse.verify(text, [ours.public])


def test_a_signers_name_does_not_reach_the_terminal(ours: Keys) -> None:
    envelope = json.loads(dsse.sign(STATEMENT.encode(), ours.private))
    envelope["signatures"][0]["keyid"] = "\x1b[2Jhello\n"
    with pytest.raises(dsse.UnknownKeyError) as caught:
        dsse.verify(json.dumps(envelope).encode(), [ours.public])
    assert str(caught.value).isprintable()


def test_an_envelope_that_nobody_signed(ours: Keys) -> None:
    envelope = json.loads(dsse.sign(STATEMENT.encode(), ours.private)) | {"signatures": []}
    with pytest.raises(dsse.UnknownKeyError, match="nobody"):
        dsse.verify(json.dumps(envelope).encode(), [ours.public])


def test_a_key_that_others_may_read(ours: Keys) -> None:
    for mode in (0o644, 0o640, 0o604):
        ours.private.chmod(mode)
        refuses(ours.private, rf"others may read this private key \(mode {mode:o}\); chmod 600")


def test_other_kinds_of_keys(tmp_path: Path, ours: Keys) -> None:
    plain = serialization.NoEncryption()
    many = (
        (rsa.generate_private_key(65537, 2048), "is an RSA key, an ed25519 key is expected"),
        (ec.generate_private_key(ec.SECP256R1()), "is an EC key, an ed25519 key is expected"),
    )
    for key, message in many:
        refuses(secret(tmp_path / "key", key.private_bytes(PEM, PKCS8, plain)), message)
        refuses(secret(tmp_path / "key", key.private_bytes(PEM, OPENSSH, plain)), message)
        public = tmp_path / "key.pub"
        public.write_bytes(key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        with pytest.raises(AttestationError, match=message):
            keys.public(public)


def test_what_is_no_private_key(tmp_path: Path, ours: Keys) -> None:
    refuses(tmp_path / "none", "No such file or directory; make one with: openssl genpkey -algorithm ed25519")
    refuses(secret(tmp_path / "a", b""), "is no private key")
    refuses(secret(tmp_path / "b", ours.public.read_bytes()), "is a public key, the private one signs")
    refuses(secret(tmp_path / "c", ours.ssh_public.read_bytes()), "is a public key, the private one signs")
    refuses(secret(tmp_path / "d", ours.private.read_bytes()[:60]), "is no private key|cannot be read as a private key")
    broken = ours.private.read_bytes().replace(b"M", b"N", 1)
    refuses(secret(tmp_path / "e", broken), "cannot be read as a private key")


def test_what_is_no_public_key(tmp_path: Path, ours: Keys) -> None:
    path = tmp_path / "key"
    for data, message in (
        (b"", "is no public key"),
        (b"ssh-ed25519 ????", "is no public key"),
        (ours.private.read_bytes(), "is a private key; verify with the public one, and keep this one secret"),
    ):
        path.write_bytes(data)
        with pytest.raises(AttestationError, match=message):
            keys.public(path)


def test_without_the_package_that_knows_keys(monkeypatch: pytest.MonkeyPatch, ours: Keys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(AttestationError, match="need the Python package cryptography, which is not here"):
        keys.public(ours.public)


def test_an_encrypted_openssh_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ssh-keygen; without the package bcrypt nobody can read it."""
    path = secret(tmp_path / "key", _ENCRYPTED)
    monkeypatch.delenv(keys.PASSPHRASE, raising=False)
    if importlib.util.find_spec("bcrypt") is None:
        refuses(path, "needs the Python package bcrypt: install it, or take a key in PEM: openssl genpkey")
        return
    refuses(path, "is encrypted; give its passphrase in MOET_KEY_PASSPHRASE")
    monkeypatch.setenv(keys.PASSPHRASE, "secret")
    assert keys.private(path)


def test_a_passphrase_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: Keys) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
    path = secret(
        tmp_path / "key", key.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"open sesame"))
    )
    monkeypatch.delenv(keys.PASSPHRASE, raising=False)
    refuses(path, "is encrypted; give its passphrase in MOET_KEY_PASSPHRASE")
    monkeypatch.setenv(keys.PASSPHRASE, "wrong")
    refuses(path, "is the passphrase in MOET_KEY_PASSPHRASE right")
    monkeypatch.setenv(keys.PASSPHRASE, "open sesame")
    assert dsse.sign(STATEMENT.encode(), path) == dsse.sign(STATEMENT.encode(), ours.private)
    # One that is set for another key does not harm.
    assert dsse.sign(STATEMENT.encode(), ours.ssh_private) == dsse.sign(STATEMENT.encode(), path)


_ENCRYPTED = b"""-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABCX2BMAJq
2Q4BJl2l23472OAAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIJxFEimk0I7eWpFa
Nttm/UWsdYQmtYjV9qa8fLtCF//dAAAAkBSYecM86uAMEOJB6tLlJ2SCz4iGOye1J81+B6
dwQneNRQuXM86D52jblHXN0LBuJkPU2XwNzraAmuD8c1HYletuMkJghT3lxiC9JQ23XYsL
EY3Wa25/b5uHit7PQLt90dbAyw7yRJ1FnWoiNN2QfD/TFyowESJdUjOkASrGvO656X2FjY
rEgtbX7Kx3TPijTQ==
-----END OPENSSH PRIVATE KEY-----
"""
