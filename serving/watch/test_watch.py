import errno
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from serving.containers.state import GONE, ContainerState
from serving.generations import place, saved_logs
from serving.generations.generation import Generation, Image
from serving.generations.generation import now as utc
from serving.launch.launch import Launch
from serving.probe.fake_server import FakeServer, serving
from serving.watch import record
from serving.watch.machine import Limits
from serving.watch.made_up import NAME, Scene
from serving.watch.meters import Meters
from serving.watch.notify import Notify
from serving.watch.record import Record
from tests.engine.ports import free_port
from tools.cli.errors import UserError
from tools.files import lock


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as fake:
        yield fake


@pytest.fixture
def scene(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(server, monkeypatch)
    assert made.steps(10) == []
    assert made.watch.ready
    return made


def recorded() -> Record:
    found = Record.read(NAME)
    assert found is not None
    return found


def logs() -> list[str]:
    return [file.read_text() for file in sorted(saved_logs.folder(NAME).glob("*"))]


def test_a_crash_is_saved_and_started_again(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.steps(20)
    scene.container.log += ["Traceback", "RuntimeError: no"]
    scene.container.end(1)
    assert scene.steps(10) == ["end"]
    (log,) = logs()
    assert log.splitlines()[0].startswith("dsv41, container, ") and "it ended by itself (status 1)" in log
    assert "ready, running, 0 running, 0 waiting, 0 prompt" in log
    assert re.search(r"canary: [\d.]+ s$", log, re.MULTILINE)
    assert log.endswith("RuntimeError: no")
    assert recorded().phase == "waiting" and recorded().log and Path(recorded().log or "").read_text() == log
    assert scene.steps(10) == ["start"]
    assert scene.container.done == ["start"] and scene.cleared == 1
    scene.steps(10)
    assert scene.watch.ready and recorded().phase == "ready"
    assert capsys.readouterr().err.splitlines() == [
        "dsv41: waiting: it ended by itself (status 1); start 1 of 5 in 6 h follows in 10 s",
        "dsv41: starting",
        "dsv41: ready",
    ]


def test_a_hang_while_health_is_200(scene: Scene) -> None:
    scene.answers(tokens=False)
    assert scene.steps(360) == ["end"]
    assert scene.container.done == ["stop"]
    assert "it hangs" in logs()[0] and logs()[0].count("canary failed: http://") >= 3
    scene.answers(tokens=True)
    assert scene.steps(10) == ["start"]
    scene.steps(10)
    assert scene.watch.ready
    shown = scene.shown()
    assert shown["moet_server_restarts_total hung"] == 1 and shown["moet_server_canary_failures_total"] >= 3


def test_progress_is_enough_to_live(scene: Scene) -> None:
    for figure in range(100):
        scene.answers(tokens=False, figure=figure)
        assert scene.steps(10) == []
    assert scene.watch.ready


def test_it_gives_up_and_says_what_to_do(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    def sleep(seconds: float) -> None:
        scene.now += seconds
        if scene.container.status.running:
            scene.container.end(1)

    scene.watch.run(10, Notify({}), sleep)
    assert scene.container.done == ["start"] * 5 and len(logs()) == 6
    (last,) = capsys.readouterr().err.splitlines()[-1:]
    assert last.startswith("dsv41: gave up: it ended by itself (status 1), after 5 starts in 6 h; its last log: ")
    assert last.endswith("; start the watch again once dsv41 runs")
    assert recorded().phase == "gave up" and recorded().why in last
    assert scene.shown()["moet_server_state gave up"] == 1
    assert scene.fresh().memory.starts == ()


def test_a_refusal_is_final(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.container.end(3)
    assert scene.steps(10) == ["give up"]
    assert scene.container.done == []
    assert "refused to start it (status 3: the image differs from its manifest); its" in capsys.readouterr().err


def test_nothing_is_done_while_another_has_the_server(scene: Scene) -> None:
    scene.subject.ours = False
    scene.answers(tokens=False)
    assert scene.steps(360) == ["end"]
    assert scene.steps(30) == ["stop"] * 3
    assert scene.container.done == []
    scene.subject.ours = True
    assert scene.steps(20) == ["stop", "start"]
    assert scene.container.done == ["stop", "start"]


def test_an_operation_and_a_wish_are_respected(scene: Scene) -> None:
    scene.container.end(1)
    scene.subject.what = replace(scene.subject.what, operation="to generation 2, starting, at work")
    assert scene.steps(3600) == []
    assert (recorded().phase, recorded().why) == ("operation", "to generation 2, starting, at work")
    scene.subject.what = replace(scene.subject.what, operation="", wanted=False)
    assert scene.steps(3600) == []
    assert recorded().phase == "down"


def test_an_engine_that_is_away_is_waited_for(scene: Scene) -> None:
    scene.container.away = True
    assert scene.steps(3600) == []
    assert recorded().phase == "unreachable" and not scene.watch.ready
    scene.container.away = False
    scene.container.end(0)
    assert scene.steps(20) == ["end", "start"]


def test_an_engine_that_refuses_costs_a_start_each_time(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.container.end(1)
    scene.container.refuses = True
    acts = scene.steps(3600)
    assert acts.count("start") == 5 and acts[-1] == "give up"
    assert "did not do it" in capsys.readouterr().err
    assert "the engine has no log of it: docker 20 did not do it: no" in logs()[0]


def test_docker_stop_is_remembered_by_the_next_watchdog(scene: Scene) -> None:
    scene.container.signals = True
    scene.container.end(0)
    assert scene.steps(3600) == []
    assert recorded().phase == "stopped"
    scene.container.signals = False
    scene.fresh()
    assert scene.steps(3600) == []
    scene.container.start()
    scene.steps(10)
    assert scene.watch.ready


@pytest.mark.parametrize("seen", ["restarting", "running"])
def test_the_log_of_a_run_that_another_started_again_is_kept(scene: Scene, seen: str) -> None:
    scene.container.log.append("RuntimeError: no")
    began = scene.container.status.started_at or 0
    status = ContainerState(NAME, "restarting", 1) if seen == "restarting" else scene.container.status
    scene.container.status = replace(status, started_at=began + 9)
    assert scene.steps(10) == []
    scene.container.status = ContainerState(NAME, "running", started_at=began + 9)
    scene.steps(20)
    assert scene.watch.ready and scene.container.done == []
    (log,) = logs()
    assert "it was started again, not by its watchdog" in log and log.endswith("RuntimeError: no")


def test_what_its_engine_removes_is_killed_and_not_started(scene: Scene) -> None:
    scene.container.status = replace(scene.container.status, auto_remove=True)
    scene.answers(tokens=False)
    assert scene.steps(360) == ["end"]
    assert scene.container.done == ["kill"] and scene.container.status == GONE
    assert scene.steps(3600) == []
    assert recorded().phase == "absent"
    assert scene.shown()["moet_server_restarts_total hung"] == 1


def test_an_image_that_is_not_attested_is_watched_and_not_ready(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(server, monkeypatch)
    scene.container.log = ["INFO vLLM"]
    scene.steps(10)
    assert scene.watch.memory.phase == "ready" and not scene.watch.ready
    assert "moet_server_ready" not in scene.shown()
    assert "not attested" in capsys.readouterr().err
    scene.container.end(1)
    assert scene.steps(20) == ["end", "start"]


@pytest.mark.parametrize(("status", "says"), [(401, "does not take the API key"), (404, "status 404")])
def test_a_token_that_will_never_come_ends_the_watch(scene: Scene, status: int, says: str) -> None:
    scene.server.answers["/v1/completions"] = (status, b"no")
    with pytest.raises(UserError, match=f"no token can be asked for: .*{says}"):
        scene.steps(70)
    assert scene.container.done == []


def test_a_server_without_figures_ends_the_watch(scene: Scene) -> None:
    scene.server.answers["/metrics"] = (200, b"process_cpu_seconds_total 1\n")
    with pytest.raises(UserError, match=r"a hang could not be seen: .*--disable-log-stats"):
        scene.steps(10)


def test_the_containers_key_is_used(scene: Scene) -> None:
    keys = {path: key for path, key, _ in scene.server.asked}
    assert keys == {"/metrics": None, "/v1/completions": "Bearer k"}


def test_a_full_disk_does_not_keep_it_from_starting_the_server(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_path: Path, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tools.files.atomic.write", full)
    scene.container.end(1)
    assert scene.steps(20) == ["end", "start"]
    assert capsys.readouterr().err.count("No space left on device") >= 2
    assert recorded().phase == "ready"


def test_two_watchdogs_of_a_server_are_one_too_many(scene: Scene) -> None:
    with lock.exclusive(place.folder(NAME) / "watch.lock"), pytest.raises(UserError, match=r"watch\.lock: held by"):
        scene.watch.run(10, Notify({}), lambda _seconds: None)
    assert scene.container.done == []


def test_starts_are_remembered_by_the_next_watchdog(scene: Scene) -> None:
    for _ in range(2):
        scene.container.end(1)
        scene.steps(60)
        assert scene.watch.ready
    again = scene.fresh()
    assert len(again.memory.starts) == 2 and all(0 <= scene.now - at < 300 for at in again.memory.starts)
    assert again.memory.reason == "crashed"


def test_a_record_that_is_none_is_said(scene: Scene) -> None:
    record.path(NAME).write_text('{"schema": "moet.watch.v9"}')
    with pytest.raises(UserError, match=r"watch\.json: is no record of moet's: .*; remove it"):
        scene.fresh()


def test_metrics_are_served_at_the_loopback_address(scene: Scene) -> None:
    port = free_port()
    scene.meters.serve(port)
    with requests.Session() as session:
        session.trust_env = False
        text = session.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    assert 'moet_server_ready{server="dsv41"} 1.0' in text
    assert 'moet_server_state{moet_server_state="ready",server="dsv41"} 1.0' in text
    assert 'moet_server_restarts_total{reason="hung",server="dsv41"} 0.0' in text
    with pytest.raises(UserError, match=f"--metrics-port {port}: Address already in use: choose a free one"):
        Meters("other").serve(port)


def test_metrics_of_what_is_watched(scene: Scene) -> None:
    shown = scene.shown()
    assert shown["moet_server_canary_seconds"] > 0
    assert abs(shown["moet_server_last_progress_timestamp_seconds"] - time.time()) < 60
    launch = Launch(
        "dsv41", "", NAME, "i", (), "published", "127.0.0.1", 1, 1, (), {}, ("serve", "/model"), {}, 1, None
    )
    image = Image("dsv41:vllm0.33.0-r1", "sha256:1")
    scene.subject.what = replace(
        scene.subject.what, generation=Generation(7, "", "", "up", None, "", image, (), launch, None)
    )
    scene.steps(10)
    assert scene.shown()["moet_server_generation_info 7 dsv41:vllm0.33.0-r1 sha256:1"] == 1
    scene.container.end(1)
    scene.steps(10)
    assert "dsv41, generation 7, " in logs()[0]
    assert "moet_server_ready" not in scene.shown()


@pytest.mark.parametrize("name", ["{folder}/notify", "@moet-{folder}"])
def test_systemd_is_told(scene: Scene, tmp_path: Path, name: str) -> None:
    address = name.format(folder=tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address.replace("@", "\0"))
        systemd.settimeout(10)

        def end(_seconds: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scene.watch.run(10, Notify({"NOTIFY_SOCKET": address}), end)
        assert systemd.recv(1000).decode().splitlines() == ["READY=1", "WATCHDOG=1", "STATUS=ready"]
        assert systemd.recv(1000).decode() == "STOPPING=1"
    Notify({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).tell(READY="1")


def test_the_profiles_deadline_counts(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(server, monkeypatch, Limits(deadline=9999))
    scene.answers(tokens=False)
    scene.container.status = replace(scene.container.status, started_at=time.time() - 100)
    scene.subject.what = replace(scene.subject.what, deadline=90)
    assert scene.steps(30) == ["end"]
    assert "did not become ready in time" in logs()[0]


def test_the_record_is_for_programs_too(scene: Scene) -> None:
    found = json.loads(record.path(NAME).read_text())
    assert (found["schema"], found["phase"], found["starts"]) == ("moet.watch.v1", "ready", [])
    assert found["since"] <= utc()
