"""Docker's own word on the forms: containers that it creates of them, never started."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from serving.launch.launch import Launch
from serving.render import examples
from tests.engine import synthetic
from tests.engine.engines import Dockerd, private_dockerd
from tests.engine.loading import load


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    """An engine that has the image of the examples, with nothing in it."""
    with private_dockerd() as engine:
        made = synthetic.make_layout(tmp_path_factory.mktemp("image") / "layout", examples.IMAGE, [{"x": b""}])
        load(DockerEngine(engine.host), layout.read(made), examples.IMAGE)
        yield engine


def run(dockerd: Dockerd, folder: Path, *command: str) -> None:
    environment = {"PATH": f"/usr/bin:{os.defpath}", "HOME": str(folder), "DOCKER_HOST": dockerd.host}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def created(dockerd: Dockerd) -> dict[str, Any]:
    """The container that a form made, as the engine has it; it is removed."""
    container = dockerd.client.containers.get("dsv41")
    attributes: dict[str, Any] = dict(container.attrs)
    container.remove(force=True)
    return attributes


def by_script(dockerd: Dockerd, folder: Path, *given: str) -> dict[str, Any]:
    (script,) = examples.render("docker", *given)
    # Created, not started: there are no GPUs, and no program in the image.
    run(dockerd, folder, "sh", "-c", script.replace("docker run", "docker create").replace("    --detach \\\n", ""))
    return created(dockerd)


def by_compose(dockerd: Dockerd, folder: Path, *given: str) -> dict[str, Any]:
    (text,) = examples.render("compose", *given)
    (folder / "x.yaml").write_text(text)
    run(dockerd, folder, "docker-compose", "-f", "x.yaml", "up", "--no-start")
    return created(dockerd)


def check(found: dict[str, Any], launch: Launch) -> None:
    host, config = found["HostConfig"], found["Config"]
    assert config["Cmd"] == list(launch.arguments)
    assert {f"{name}={value}" for name, value in launch.environment.items()} <= set(config["Env"])
    mounts = {one["Destination"]: (one.get("Name") or one["Source"], one["RW"]) for one in found["Mounts"]}
    assert mounts == {bind.target: (bind.source, bind.write) for bind in launch.binds}
    (device,) = host["DeviceRequests"]
    assert device["DeviceIDs"] == list(launch.gpus) and device["Capabilities"] == [["gpu"]]
    assert host["IpcMode"] == "host" and host["CapDrop"] == ["ALL"] and "no-new-privileges" in host["SecurityOpt"]
    assert {one["Name"]: (one["Soft"], one["Hard"]) for one in host["Ulimits"]} == {
        name: (value, value) for name, value in launch.ulimits.items()
    }
    assert host["PortBindings"] == {"8000/tcp": [{"HostIp": launch.bind, "HostPort": str(launch.port)}]}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, ...]:
    """Hostile settings whose folders are there, as Docker wants them."""
    given = []
    for setting in examples.HOSTILE:
        name, _, value = setting.partition("=")
        if value.startswith("/"):
            Path(f"{tmp_path}{value}").mkdir(parents=True)
            value = f"{tmp_path}{value}"
        given.append(f"{name}={value}")
    return tuple(given)


@pytest.mark.parametrize("form", [by_script, by_compose])
def test_docker_creates_the_very_launch(form: Any, dockerd: Dockerd, tmp_path: Path) -> None:
    given = (f"MODEL_DIR={tmp_path}", "GPUS=1,3", "TP=2", "BIND=::1", "PORT=9000")
    check(form(dockerd, tmp_path, *given), examples.launch(*given))


@pytest.mark.parametrize("form", [by_script, by_compose])
def test_docker_takes_hostile_values_as_they_are(
    form: Any, dockerd: Dockerd, tmp_path: Path, folders: tuple[str, ...]
) -> None:
    check(form(dockerd, tmp_path, *folders), examples.launch(*folders))


def test_key_comes_from_the_file(dockerd: Dockerd, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("VLLM_API_KEY=aB3._~+/-==\n")
    file.chmod(0o600)
    given = (f"MODEL_DIR={tmp_path}", f"API_KEY_FILE={file}", "BIND=0.0.0.0")
    for form in (by_script, by_compose):
        assert "VLLM_API_KEY=aB3._~+/-==" in form(dockerd, tmp_path, *given)["Config"]["Env"]
