"""A toy tree, a registry, and a new place to publish to for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.registry import client, transport
from tests.engine.engines import loopback_registry
from tests.publish.place import Place, environment, place_of
from tests.registry_faults.proxy import Faulty, faulty
from tests.release.toy import LINE, Toy, make_toy


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def upstream() -> Iterator[str]:
    with loopback_registry() as address:
        yield address


@pytest.fixture
def proxy(upstream: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(client, "SETTLE_SECONDS", 0)
    with faulty(upstream) as made:
        yield made


@pytest.fixture
def new_place(toy: Toy, proxy: Faulty, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Place]:
    """Makes another place, called as it is told."""
    test = "".join(mark if mark.isalnum() else "-" for mark in request.node.name.lower()).strip("-").replace("--", "-")

    def make(name: str) -> Place:
        (tmp_path / name).mkdir()
        return place_of(toy, proxy, f"{test}/{name}/{LINE}", tmp_path / name)

    return make


@pytest.fixture
def place(new_place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch) -> Place:
    made = new_place("place")
    for name, value in environment(made).items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture(scope="session")
def whole(toy: Toy, upstream: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What is there after a publish that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    with faulty(upstream) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "SETTLE_SECONDS", 0)
        made = place_of(toy, proxy, f"whole/{LINE}", folder)
        patch.setenv("HOME", str(made.home))
        status, _, said = made.publish()
        assert status == 0, said
        assert made.leftovers() == []
        return made.published()
