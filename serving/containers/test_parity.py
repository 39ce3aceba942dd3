"""A container that the SDK makes of a launch is the one that `docker create` makes of its command."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from images.engine.errors import EngineError
from serving.containers.containers import Containers
from serving.containers.docker_options import NAMES
from serving.launch import docker_command
from serving.launch.key import VARIABLE, Key
from serving.launch.launch import ALONE, Bind, Launch, Node
from tests.engine import synthetic
from tests.engine.engines import Dockerd, private_dockerd
from tests.engine.loading import load
from tools.cli.errors import UserError

IMAGE = "dsv41:vllm0.33.0-r2"
_HOSTILE = "a b'c\"d$HOME `id` %h \\n ,=x:y é\ttab"


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    with private_dockerd() as engine:
        made = synthetic.make_layout(tmp_path_factory.mktemp("image") / "layout", IMAGE, [{"x": b""}])
        load(DockerEngine(engine.host), layout.read(made), IMAGE)
        yield engine


@pytest.fixture
def containers(dockerd: Dockerd) -> Iterator[Containers]:
    engine = Containers(dockerd.host)
    yield engine
    engine.close()


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "model").mkdir()
    return Launch(
        line="dsv41",
        title="A model",
        name="dsv41",
        image=IMAGE,
        gpus=("0", "GPU-1f"),
        network="published",
        bind="127.0.0.1",
        port=8001,
        inner_port=8000,
        binds=(Bind(str(tmp_path / "model"), "/model", False), Bind("dsv41-cache", "/var/lib/moet", True)),
        environment={"VLLM_ENGINE_READY_TIMEOUT_S": "3600", "A": _HOSTILE},
        arguments=("serve", "/model", f"--served-model-name={_HOSTILE}"),
        ulimits={"memlock": -1, "stack": 67108864},
        shared_memory_gib=32,
        key=None,
    )


def by_command(dockerd: Dockerd, launch: Launch, labels: dict[str, str], key: str | None) -> dict[str, Any]:
    """The container that Docker's own command creates, as inspected; it is removed."""
    words = ["docker", "create", "--name=by-command", *(f"--label={name}={value}" for name, value in labels.items())]
    words += [*docker_command.options(launch), launch.image, *launch.arguments]
    environment = {**os.environ, "PATH": f"/usr/bin:{os.defpath}", "DOCKER_HOST": dockerd.host}
    environment |= {VARIABLE: key} if key else {}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return inspected(dockerd, done.stdout.strip())


def by_sdk(
    dockerd: Dockerd, containers: Containers, launch: Launch, labels: dict[str, str], key: str | None
) -> dict[str, Any]:
    return inspected(dockerd, containers.create(launch, "by-sdk", labels, key).id)


def inspected(dockerd: Dockerd, container: str) -> dict[str, Any]:
    """What says how the container will run: nothing of its name, its id or of who looks at it."""
    found = dockerd.client.api.inspect_container(container)
    dockerd.client.api.remove_container(container, force=True, v=True)
    config, host = dict(found["Config"]), dict(found["HostConfig"])
    assert config["Hostname"]
    if config["Hostname"] == found["Id"][:12]:
        del config["Hostname"]
    for stream in ("AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce", "OpenStdin"):
        del config[stream]
    # The terminal of the command's caller.
    host.pop("ConsoleSize", None)
    # Docker keeps all three in hash tables on the way.
    config["Env"], host["Ulimits"] = sorted(config["Env"]), sorted(host["Ulimits"], key=lambda one: one["Name"])
    host["Binds"] = sorted(host["Binds"] or [])
    return {
        "config": _plain(config),
        "host": _plain(host),
        "mounts": sorted(json.dumps(one, sort_keys=True) for one in found["Mounts"] if one.get("Driver") != "local")
        + sorted(one["Destination"] for one in found["Mounts"]),
    }


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Without what is not said: null, false, 0, "" and empty lists mean the engine's default alike."""
    return {name: one for name, one in value.items() if one}


@pytest.fixture
def same(dockerd: Dockerd, containers: Containers) -> Any:
    def check(launch: Launch, key: str | None = None) -> dict[str, Any]:
        labels = {"org.moet.server": "dsv41", "org.moet.generation": "3"}
        expected = by_command(dockerd, launch, labels, key)
        found = by_sdk(dockerd, containers, launch, labels, key)
        assert found == expected
        assert set(labels.items()) <= set(found["config"]["Labels"].items())
        return found

    return check


def test_plain(same: Any, launch: Launch) -> None:
    found = same(launch)
    assert found["host"]["PortBindings"] == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8001"}]}
    assert found["host"]["DeviceRequests"][0]["DeviceIDs"] == ["0", "GPU-1f"]


def test_host_network_ipv6_and_several_hosts(same: Any, launch: Launch) -> None:
    assert same(replace(launch, network="host"))["host"]["NetworkMode"] == "host"
    assert same(replace(launch, network="none"))["host"]["NetworkMode"] == "none"
    assert same(replace(launch, bind="::1"))["host"]["PortBindings"]["8000/tcp"][0]["HostIp"] == "::1"
    assert ALONE.rank == 0 and "PortBindings" not in same(replace(launch, node=Node(2, 1, "192.0.2.1")))["host"]


def test_key_of_a_file_and_of_the_environment(same: Any, launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{VARIABLE}=aB3._~+/-==\n")
    file.chmod(0o600)
    assert f"{VARIABLE}=aB3._~+/-==" in same(replace(launch, key=Key(str(file))))["config"]["Env"]
    assert f"{VARIABLE}=other" in same(replace(launch, key=Key(None)), "other")["config"]["Env"]


WORDS = [
    ("--env=B=2", "-e", "C=x y", "-eD=3", "--env", "NO_SUCH_VARIABLE", "--env=HOME"),
    ("--memory=4g", "--memory-swap", "8g", "--memory-reservation=1g", "--cpus=1.5", "--cpu-shares", "512"),
    ("-m4g", "-c", "256", "--cpuset-cpus=0", "--cpuset-mems=0", "--cgroup-parent=/moet"),
    ("--volume=/tmp:/t:ro", "-v", "named:/n", "-v/anonymous"),
    ("--mount=type=tmpfs,dst=/x,tmpfs-size=1048576,tmpfs-mode=1770", "--mount", "type=bind,src=/tmp,dst=/y,ro"),
    ("--tmpfs=/scratch:size=64m", "--tmpfs", "/more", "--read-only", "--shm-size=1g"),
    ("--device=/dev/null:/dev/x:r", "--cap-add=SYS_NICE", "--cap-drop=CHOWN", "--group-add", "video"),
    ("--ulimit=nofile=1024:2048", "--ulimit", "stack=8388608", "--sysctl=net.core.somaxconn=1024"),
    ("--log-driver=json-file", "--log-opt=max-size=10m", "--log-opt", "max-file=3", "--label=a=b", "-l", "c"),
    ("--hostname=h", "--domainname=d", "--add-host=x:192.0.2.1", "--dns=192.0.2.2", "--dns-search=x.invalid", "-it"),
    ("--init", "--interactive", "--tty", "-h", "other"),
    ("--user=1000:1000", "--workdir=/tmp", "--entrypoint=/usr/bin/x y", "--stop-signal=SIGINT", "--pids-limit=100"),
    ("-u", "1000", "-w/tmp", "--oom-score-adj=-500", "--userns=host"),
    ("--security-opt=seccomp=unconfined", "--pid=host", "--uts=host", "--cgroupns=host"),
    ("--ipc=private", "--privileged", "--runtime=runc", "--device-cgroup-rule=c 1:3 r", "--blkio-weight=300"),
    ("--log-opt=max-size=10m",),
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_further_words(same: Any, launch: Launch, words: tuple[str, ...]) -> None:
    plain = same(launch)
    assert same(replace(launch, docker_options=words)) != plain


def test_every_option_is_among_them() -> None:
    assert {word.partition("=")[0] for words in WORDS for word in words if word.startswith("--")} == set(NAMES)


def test_a_seccomp_profile_is_read(same: Any, launch: Launch, tmp_path: Path) -> None:
    profile = tmp_path / "seccomp.json"
    profile.write_text('{\n  "defaultAction": "SCMP_ACT_ALLOW"\n}\n')
    found = same(replace(launch, docker_options=(f"--security-opt=seccomp={profile}",)))
    assert 'seccomp={"defaultAction":"SCMP_ACT_ALLOW"}' in found["host"]["SecurityOpt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--memroy=4g",), "EXTRA_DOCKER_ARGS: --memroy: `moet serve up` does not take it: did you mean --memory? the"),
        (("--cidfile=/x",), "--cidfile: `moet serve up` does not take it: the forms of"),
        (("word",), "word: `moet serve up` does not take it"),
        (("--memory",), "argument --memory/-m: expected one argument: expected what docker run takes"),
        (("--cpus=many",), "invalid float value: 'many'"),
        (("--memory=4q",), "4q"),
        (("--ulimit=nofile",), "expected what docker run takes"),
        (("--mount=type=bind,src=/tmp",), "--mount type=bind,src=/tmp: target is missing"),
        (("--mount=type=bind,src=/tmp,dst=/y,z=1",), "z is not taken here"),
        (("--security-opt=seccomp=/no/such",), "--security-opt seccomp=/no/such: "),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_refused(containers: Containers, launch: Launch, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as caught:
        containers.create(replace(launch, docker_options=words), "x", {}, None)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert containers.find("x") is None


def test_a_key_that_is_missing(containers: Containers, launch: Launch) -> None:
    with pytest.raises(UserError, match=f"{VARIABLE} is not set"):
        containers.create(replace(launch, key=Key(None)), "x", {}, None)


def test_what_the_engine_refuses_is_one_line(containers: Containers, launch: Launch) -> None:
    for wrong, said in [
        (replace(launch, image="no:such"), r"docker \S+ did not create container x of no:such: .*no:such"),
        (replace(launch, binds=(Bind("/no/such", "/model", False),)), "did not create .*/no/such"),
    ]:
        with pytest.raises(EngineError, match=said) as caught:
            containers.create(wrong, "x", {}, None)
        assert "\n" not in str(caught.value)
