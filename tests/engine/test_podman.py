"""podman loads the image, keeps its digests, and runs it."""

from collections.abc import Iterator

import pytest

from images.engine.layout import Image
from images.engine.podman_engine import PodmanEngine
from images.engine.result import LoadResult
from tests.engine.containers import Container, PodmanRunner
from tests.engine.engines import Podman, private_podman
from tests.engine.loading import load


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with private_podman() as engine, pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment.items():
            patch.setenv(name, value)
        yield engine


@pytest.fixture(scope="module")
def loaded(podman: Podman, image: Image) -> LoadResult:
    return load(PodmanEngine(), image, "moet-test:image")


@pytest.fixture(scope="module")
def runner(podman: Podman, loaded: LoadResult) -> PodmanRunner:
    return PodmanRunner(podman, loaded.reference)


def test_digests_are_kept(podman: Podman, loaded: LoadResult, image: Image) -> None:
    digest = podman("image", "inspect", "--format", "{{.Digest}} {{.Id}}", loaded.reference).stdout.split()
    assert digest == [image.manifest.digest, image.config.digest.removeprefix("sha256:")]


def test_attests(runner: PodmanRunner) -> None:
    outcome = runner.run(Container(["attest", "--json"]))
    assert outcome.status == 0, outcome.tail()
    assert outcome.json()["ok"] is True


def test_runs_hardened(runner: PodmanRunner) -> None:
    command = ["exec", "python3.11", "-c", "import os, torch; print(os.getuid(), torch.__version__)"]
    outcome = runner.run(Container(command, hardened=True))
    assert outcome.status == 0, outcome.tail()
    assert "attested" in outcome.errors and outcome.output.startswith("1000 2.")
