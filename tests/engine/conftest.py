"""One engine, one load of the image, and one queue of long programs for all tests of a session."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from images.engine.layout import Image
from images.engine.result import LoadResult
from tests.engine import inputs, jobs, scratch
from tests.engine.containers import DockerRunner, Outcome
from tests.engine.engines import Dockerd, private_dockerd
from tests.engine.loading import load
from tests.engine.programs import Programs


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that names a test's long program."""
    config.addinivalue_line("markers", "job(name): the test looks at the outcome of a program of tests/engine/jobs.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for a long program come last, in the order in which the programs end."""
    order = [job.name for job in jobs.JOBS]

    def place(item: pytest.Item) -> int:
        mark = item.get_closest_marker("job")
        return order.index(mark.args[0]) + 1 if mark else 0

    items.sort(key=place)


@pytest.fixture(scope="session")
def image() -> Image:
    """The image under test, as its layout has it."""
    return layout.read(inputs.path("MOET_IMAGE_LAYOUT"))


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """What runs inside, and the folders that it brings."""
    with scratch.folder(scratch.roomy()) as folder:
        yield Programs.prepare(folder)


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    """A dockerd of the session's own."""
    with private_dockerd() as engine:
        yield engine


@pytest.fixture(scope="session")
def loaded(request: pytest.FixtureRequest, dockerd: Dockerd, image: Image) -> LoadResult:
    """The image in the engine, as `bazel run ...:load` puts it there."""
    # What is missing should be said before minutes of loading.
    request.getfixturevalue("programs")
    return load(DockerEngine(dockerd.host), image, "moet-test:image")


@pytest.fixture(scope="session")
def base(dockerd: Dockerd, loaded: LoadResult) -> DockerRunner:
    """Containers of the same image without steps, which is loaded after it and shares its layers."""
    result = load(DockerEngine(dockerd.host), layout.read(inputs.path("MOET_BASE_LAYOUT")), "moet-test:base")
    assert result.layers_skipped >= loaded.layers_sent // 2, result
    return DockerRunner(dockerd.client, result.image_id)


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, programs: Programs, dockerd: Dockerd, loaded: LoadResult, base: DockerRunner
) -> Iterator[dict[str, "Future[Outcome]"]]:
    """The long programs of the selected tests, two at a time."""
    marks = [mark for item in request.session.items for mark in item.iter_markers("job")]
    wanted = {mark.args[0] for mark in marks}
    image = DockerRunner(dockerd.client, loaded.image_id)
    with ThreadPoolExecutor(2) as pool:
        yield {job.name: pool.submit(job.run, programs, image, base) for job in jobs.JOBS if job.name in wanted}
        pool.shutdown(wait=False, cancel_futures=True)
        for container in dockerd.client.containers.list():
            container.kill()


@pytest.fixture(scope="session")
def docker(request: pytest.FixtureRequest, dockerd: Dockerd, loaded: LoadResult) -> DockerRunner:
    """Containers of the image, for whatever a test runs while the long programs run."""
    request.getfixturevalue("outcomes")
    return DockerRunner(dockerd.client, loaded.image_id)


@pytest.fixture
def outcome(request: pytest.FixtureRequest, outcomes: dict[str, "Future[Outcome]"]) -> Outcome:
    """How the test's long program ended."""
    (mark,) = request.node.iter_markers("job")
    return outcomes[mark.args[0]].result()
