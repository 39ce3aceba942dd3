"""An engine for the session, and a host with nothing served on it for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.engines import Dockerd
from tests.serving.operator import Operator
from tests.standin.engine import serving_dockerd
from tests.standin.host import enter, make_host


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    with serving_dockerd() as engine:
        yield engine


@pytest.fixture
def operator(tmp_path: Path, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    host = make_host(tmp_path, dockerd)
    enter(host, monkeypatch)
    at = Operator(host)
    yield at
    at.leave()
