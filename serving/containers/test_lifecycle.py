"""Containers of a real engine: the stand-in in the image's real entry point, from its creation to its removal."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from images.engine.errors import EngineError
from serving.containers.container import Container
from serving.containers.containers import Containers
from serving.containers.following import Following
from serving.containers.state import GONE
from serving.launch.launch import Bind, Launch
from serving.startup.phases import PHASES, Tracker
from tests.engine.engines import Dockerd
from tests.engine.loading import load
from tests.engine.ports import free_port
from tests.standin.engine import serving_dockerd
from tests.standin.image import make_layout

IMAGE = "toy:vllm0.33.0-r1"
_LABELS = {"org.moet.server": "toy"}
_UP = "Application startup complete."


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    with serving_dockerd() as engine:
        load(DockerEngine(engine.host), layout.read(make_layout(tmp_path_factory.mktemp("image") / "x", IMAGE)), IMAGE)
        yield engine


@pytest.fixture
def containers(dockerd: Dockerd) -> Iterator[Containers]:
    engine = Containers(dockerd.host)
    yield engine
    for container in engine.labelled({}):
        container.remove()
    engine.close()


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "model").mkdir()
    return Launch(
        line="toy",
        title="A toy",
        name="toy",
        image=IMAGE,
        gpus=("0",),
        network="published",
        bind="127.0.0.1",
        port=free_port(),
        inner_port=8000,
        binds=(Bind(str(tmp_path / "model"), "/model", False), Bind("toy-cache", "/var/lib/moet", True)),
        environment={},
        arguments=("serve", "/model", "--host=0.0.0.0", "--port=8000"),
        ulimits={},
        shared_memory_gib=1,
        key=None,
    )


def up(container: Container) -> list[str]:
    """Starts it; the lines until it is up."""
    container.start()
    lines = []
    for line in (following := container.follow()):
        lines.append(line)
        if _UP in line:
            break
    following.close()
    return lines


def followed(following: Following, end: Callable[[], object]) -> None:
    """Reads a log of a server that is up to its end, which `end`, called by another thread meanwhile, brings about."""
    ending = threading.Timer(0.2, end)
    for line in following:
        if _UP in line:
            ending.start()
    ending.join()


def test_from_created_to_gone(containers: Containers, launch: Launch) -> None:
    container = containers.create(launch, "toy", _LABELS, None)
    created = container.state()
    assert (created.name, created.status, created.exit_code, created.started_at) == ("toy", "created", None, None)
    assert created.labels["org.moet.server"] == "toy" and created.labels["org.moet.tag"] == IMAGE
    image = containers.image(IMAGE)
    assert image and created.image_id == image.image_id and containers.image("no:such") is None
    before = time.time()
    lines = up(container)
    running = container.state()
    assert running.running and running.started_at and before - 1 < running.started_at < time.time() + 1
    assert lines[0].startswith(f"moet: {IMAGE} (vllm 0.33.0, 4ba787ec9; commit ")
    assert container.logs(tail=1).strip() in [line.strip() for line in container.logs().splitlines()]
    assert container.logs(since=time.time() + 60) == ""
    status, said = container.run_in(["/usr/bin/moet-serve", "attest", "--json"])
    assert status == 0 and json.loads(said)["ok"]
    container.restart(10)
    again = container.state()
    assert again.running and again.started_at and again.started_at > running.started_at
    container.kill()
    killed = container.state()
    assert (killed.status, killed.exit_code, killed.oom_killed) == ("exited", 137, False) and killed.finished_at
    container.kill()
    container.stop(1)
    container.remove()
    container.remove()
    assert container.state() == GONE and container.state().gone and not container.state().running


def test_a_start_has_vllms_phases_in_order(containers: Containers, launch: Launch) -> None:
    tracker = Tracker(time.monotonic)
    lines = up(containers.create(launch, "toy", {}, None))
    assert [tracker.phase, *(tracker.phase for line in lines if tracker.feed(line))] == list(PHASES)


def test_found_by_name_and_label(containers: Containers, launch: Launch) -> None:
    one = containers.create(launch, "toy", {**_LABELS, "org.moet.generation": "1"}, None)
    two = containers.create(launch, "toy.new", {**_LABELS, "org.moet.generation": "2"}, None)
    found = containers.find("toy")
    assert found and found.id == one.id
    assert containers.find("to") is None and containers.find(one.id) is None
    assert {each.id for each in containers.labelled(_LABELS)} == {one.id, two.id}
    assert [each.id for each in containers.labelled({**_LABELS, "org.moet.generation": "2"})] == [two.id]
    with pytest.raises(EngineError, match=r"did not rename container .* to toy:"):
        two.rename("toy")
    with pytest.raises(EngineError, match="did not create container toy of"):
        containers.create(launch, "toy", {}, None)
    one.rename("toy.previous")
    two.rename("toy")
    assert one.state().name == "toy.previous" and two.state().name == "toy"


def test_files_of_a_container_that_never_ran(containers: Containers, launch: Launch, tmp_path: Path) -> None:
    container = containers.create(launch, "toy", {}, None)
    (tmp_path / "model/config.json").write_text("{}")
    assert container.read_file("/model/config.json") == b"{}"
    assert container.read_file("/model/none") is None and container.read_file("/model") is None
    container.write_file("/var/lib/moet/.moet-cache.json", b"key", 1000, 0o640)
    assert container.read_file("/var/lib/moet/.moet-cache.json") == b"key"
    up(container)
    code = "import os; found = os.stat('/var/lib/moet/.moet-cache.json'); print(found.st_uid, oct(found.st_mode))"
    status, said = container.run_in(["python3.11", "-c", code])
    assert (status, said.split()) == (0, ["1000", "0o100640"])
    with pytest.raises(EngineError, match="did not write /model/x of container"):
        container.write_file("/model/x", b"", 1000, 0o644)


def test_following_ends(dockerd: Dockerd, containers: Containers, launch: Launch, tmp_path: Path) -> None:
    """With the container, by close() from another thread, and with the engine."""
    (tmp_path / "model/standin.json").write_text('{"fail_at": {"phase": "weights", "status": 7}}')
    failing = containers.create(launch, "toy", {}, None)
    failing.start()
    assert "was told to fail here" in "".join(failing.follow())
    assert failing.state().exit_code == 7
    (tmp_path / "model/standin.json").write_text("{}")
    container = containers.create(launch, "toy2", {}, None)
    up(container)
    following = container.follow()
    followed(following, following.close)
    try:
        followed(container.follow(), dockerd.daemon.stop)
        with pytest.raises(EngineError, match="does not answer"):
            container.state()
    finally:
        dockerd.start()
    assert container.state().status == "exited"


def test_memory_runs_out(containers: Containers, launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "model/standin.json").write_text('{"oom_at": {"phase": "autotune", "how": "kill"}}')
    limited = replace(launch, docker_options=("--memory=96m", "--memory-swap=96m"))
    container = containers.create(limited, "toy", {}, None)
    container.start()
    list(container.follow())
    state = container.state()
    assert (state.status, state.exit_code, state.oom_killed) == ("exited", 137, True)


def test_a_port_that_is_taken(containers: Containers, launch: Launch) -> None:
    up(containers.create(launch, "toy", {}, None))
    second = containers.create(launch, "toy2", {}, None)
    with pytest.raises(EngineError, match=f"^127.0.0.1:{launch.port} is taken by another program: choose another port"):
        second.start()
    assert second.state().status == "created" and "port is already allocated" in second.state().error
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        third = containers.create(replace(launch, port=port), "toy3", {}, None)
        with pytest.raises(EngineError, match=f"^127.0.0.1:{port} is taken by another program: "):
            third.start()


def test_what_is_gone_is_said_in_one_line(containers: Containers, launch: Launch) -> None:
    container = containers.create(launch, "toy", {}, None)
    container.remove()
    for ask in (container.start, container.logs, lambda: container.rename("x"), lambda: container.read_file("/x")):
        with pytest.raises(EngineError, match=f"{container.id[:12]}.*No such container") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_no_engine() -> None:
    with pytest.raises(EngineError, match="no engine answers at unix:///nowhere"):
        Containers("unix:///nowhere")
