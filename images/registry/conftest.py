"""A real registry, one that fails on request before it, and a client without long pauses."""

from collections.abc import Iterator

import pytest

from images.registry import client, transport
from images.registry.client import Registry
from tests.engine.engines import loopback_registry
from tests.registry_faults.proxy import Faulty, faulty


@pytest.fixture(scope="session")
def upstream() -> Iterator[str]:
    with loopback_registry() as address:
        yield address


@pytest.fixture
def proxy(upstream: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """The failing registry; nobody is logged in anywhere."""
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(client, "SETTLE_SECONDS", 0)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    for name in ("REGISTRY_AUTH_FILE", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with faulty(upstream) as made:
        yield made


@pytest.fixture
def registry(proxy: Faulty) -> Iterator[Registry]:
    with Registry(proxy.address, plain_http=True) as made:
        yield made
