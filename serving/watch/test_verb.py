import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from images.engine.interface import EngineImage
from serving.generations import store
from serving.generations.generation import Generation, Image
from serving.generations.server import SCHEMA, Server
from serving.launch.launch import Launch
from serving.render.systemd_reader import verify, words
from serving.watch import unit
from serving.watch.subject import ServerSubject
from tools.cli.errors import UserError
from tools.files import lock
from tools.moet import main as program

BESIDE = ("--container=a-b", "--port=8001")


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree with no release, no state, and no engine."""
    (tmp_path / "images").mkdir()
    (tmp_path / "bazelw").touch()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nWhat it is.\n\n## [Unreleased]\n")
    for name in ("BUILD_WORKING_DIRECTORY", "BUILD_WORKSPACE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")


def watch(*given: str) -> int:
    return program.main(["serve", "watch", *given])


def server() -> Server:
    """A server of one generation, which runs."""
    launch = Launch(
        line="dsv41",
        title="",
        name="dsv41",
        image="dsv41:vllm0.33.0-r1",
        gpus=("0",),
        network="published",
        bind="0.0.0.0",
        port=8001,
        inner_port=8000,
        binds=(),
        environment={},
        arguments=("serve", "/model", "--served-model-name=m"),
        ulimits={},
        shared_memory_gib=1.0,
        key=None,
    )
    image = Image.of("dsv41:vllm0.33.0-r1", EngineImage("sha256:1", (), (), {}))
    made = Generation(1, "2026-01-01T00:00:00+00:00", "me (0)", "up", None, "", image, (), launch, None, "served")
    return Server(SCHEMA, "dsv41", (made,), running=1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "no server was started here yet"),
        (("--server=dsv41", "--once"), "'dsv41' is no server of this user's"),
        (("--container=ab",), "--container needs --port"),
        (("--port=8001",), "--port is for --container"),
        ((*BESIDE, "--server=a"), "name one of them"),
        ((*BESIDE, "--unit"), "a unit needs moet as one file"),
    ],
)
def test_what_cannot_be_watched_is_said(given: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(*given) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    "given", ["--stall=0", "--stall=nan", "--interval=x", "--starts=0", "--port=0", "--bind=host", "--container=../a"]
)
def test_values_that_it_does_not_take(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        watch(*BESIDE, given)
    assert "expected" in capsys.readouterr().err


def test_without_an_engine_the_verdict_is_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert watch(*BESIDE, "--once") == 1
    assert capsys.readouterr().out == "a-b: not ready: the engine does not answer\n"


@pytest.mark.parametrize("host", ["unix:///run/docker.sock", "unix:///run/%h $HOME \"'é\\/docker.sock"])
def test_systemd_takes_the_unit_and_reads_the_very_words(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moet = tmp_path / "a b%h" / "moet.pyz"
    moet.parent.mkdir()
    with zipfile.ZipFile(moet, "w") as made:
        made.writestr("__main__.py", "")
    monkeypatch.setattr("sys.argv", [str(moet)])
    monkeypatch.setenv("DOCKER_HOST", host)
    assert watch(*BESIDE, "--unit", "--metrics-port=9101", "--deadline=60") == 0
    file = tmp_path / "watch.service"
    file.write_text(capsys.readouterr().out)
    assert verify(file) == ""
    read = verify(file, debug=True)
    (command,) = [line.partition("Command Line: ")[2] for line in read.splitlines() if "Command Line: " in line]
    given = [*BESIDE, "--bind=127.0.0.1", "--stall=360", "--starts=5", "--interval=10", "--deadline=60"]
    assert words(command)[1:] == [str(moet), "serve", "watch", *given, "--metrics-port=9101"]
    (line,) = [line for line in file.read_text().splitlines() if "DOCKER_HOST=" in line]
    assert line.replace("%%", "%").replace('\\"', '"').replace("\\\\", "\\").strip('"').endswith(host)


def test_systemd_would_complain(tmp_path: Path) -> None:
    file = tmp_path / "watch.service"
    file.write_text(unit.text("a", ["/usr/bin/env", "true"]).replace("Type=notify", "Type=notified"))
    assert "notified" in verify(file)


def test_a_server_is_watched_as_its_state_has_it() -> None:
    subject = ServerSubject("dsv41", None)
    store.write(server())
    target = subject.target()
    assert (target.api.base_url, target.api.model, target.wanted) == ("http://127.0.0.1:8001", "m", True)
    assert target.generation is not None and target.generation.number == 1
    assert (target.deadline or 0) > 600 and ServerSubject("dsv41", None, 5).target().deadline == 5
    store.write(replace(server(), stopped=True))
    assert not subject.target().wanted


def test_a_command_at_work_and_one_that_was_interrupted_are_told_apart() -> None:
    subject = ServerSubject("dsv41", None)
    store.write(server().starting_again("2026-01-01T00:00:00+00:00"))
    assert subject.target().operation.startswith("to generation 1, creating, interrupted: `moet serve up`")
    with store.locked("dsv41", print):
        assert subject.target().operation == "to generation 1, creating, at work"


def test_nothing_is_done_to_a_server_that_another_has_or_changed() -> None:
    subject = ServerSubject("dsv41", None)
    store.write(server())
    subject.target()
    with subject.acting() as ours:
        assert ours
        with pytest.raises(UserError, match="held by process"), lock.exclusive(store.lock_path("dsv41")):
            pass
    with store.locked("dsv41", print), subject.acting() as ours:
        assert not ours
    store.write(replace(server(), stopped=True))
    with subject.acting() as ours:
        assert not ours
