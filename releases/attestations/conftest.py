"""A release of a toy tree, keys, and a registry that has the release's image."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from images.registry import client, transport
from images.registry.client import Registry
from images.registry.descriptor import Descriptor
from images.registry.push_image import push_image
from releases.changelog.entry import Entry
from releases.known import Known
from releases.record import Record
from releases.tag import Tag
from tests.engine.engines import loopback_registry
from tests.engine.loading import Quiet
from tests.registry_faults.proxy import Faulty, faulty
from tests.release.toy import R1, Toy, make_toy


@dataclass(frozen=True)
class Keys:
    """Files of one key."""

    private: Path
    public: Path
    ssh_private: Path
    ssh_public: Path


@dataclass(frozen=True)
class Shelf:
    """A registry with an image: the client, the repository, the image, and the proxy that can fail."""

    registry: Registry
    name: str
    image: Descriptor
    proxy: Faulty


def make_keys(folder: Path, name: str, seed: int) -> Keys:
    """Writes a key, the same for the same seed, in all its forms."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    folder.mkdir(parents=True, exist_ok=True)
    made = Keys(*(folder / f"{name}{suffix}" for suffix in (".pem", ".pub.pem", "", ".pub")))
    encoding, public = serialization.Encoding, serialization.PublicFormat
    plain = serialization.NoEncryption()
    made.private.write_bytes(key.private_bytes(encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    made.ssh_private.write_bytes(key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, plain))
    made.public.write_bytes(key.public_key().public_bytes(encoding.PEM, public.SubjectPublicKeyInfo))
    made.ssh_public.write_bytes(key.public_key().public_bytes(encoding.OpenSSH, public.OpenSSH) + b" somebody\n")
    for path in (made.private, made.ssh_private):
        path.chmod(0o600)
    return made


@pytest.fixture
def ours(tmp_path: Path) -> Keys:
    return make_keys(tmp_path / "keys", "ours", 1)


@pytest.fixture
def theirs(tmp_path: Path) -> Keys:
    return make_keys(tmp_path / "keys", "theirs", 2)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def entry(toy: Toy) -> Entry:
    return Known.find(toy.root).entry(Tag.parse(R1))


@pytest.fixture(scope="session")
def record(toy: Toy) -> Record:
    return Known.find(toy.root).record(Tag.parse(R1))


@pytest.fixture(scope="session")
def upstream() -> Iterator[str]:
    with loopback_registry() as address:
        yield address


@pytest.fixture
def shelf(request: pytest.FixtureRequest, upstream: str, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(client, "SETTLE_SECONDS", 0)
    name = "moet/" + "".join(mark if mark.isalnum() else "-" for mark in request.node.name.lower()).strip("-")
    with faulty(upstream) as proxy, Registry(proxy.address, plain_http=True) as registry:
        image = push_image(registry, name, "r1", toy.image(R1), Quiet()).manifest
        yield Shelf(registry, name, image, proxy)
