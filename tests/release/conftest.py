"""A toy tree, an engine and a registry for the tests of what is current on a host."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import push
from images.engine.reference import parse
from images.registry.client import Registry
from tests.engine.engines import Dockerd, loopback_registry, private_dockerd
from tests.engine.loading import Quiet
from tests.release.host import Host
from tests.release.toy import LINE, R0, R1, make_toy


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    with private_dockerd() as engine:
        yield engine


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry's repository that has both releases."""
    toy = make_toy(tmp_path_factory.mktemp("published"))
    with loopback_registry() as address:
        with Registry(address, plain_http=True) as registry:
            for tag in (R0, R1):
                push.push(registry, toy.image(tag), parse(f"{address}/moet/{tag}"), Quiet())
        yield f"{address}/moet/{LINE}"


@pytest.fixture
def host(tmp_path: Path, dockerd: Dockerd, published: str, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host on which nothing is current and whose engine is empty."""
    for image in dockerd.client.images.list(all=True):
        dockerd.client.images.remove(str(image.id), force=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Builds leave their caches at home, and Docker's credentials are there.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Host(make_toy(tmp_path), tmp_path / f"state/moet/lines/{LINE}.json", dockerd, published)
