"""The watchdog beside stand-ins in a real engine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from docker.models.containers import Container

from serving.generations import saved_logs
from serving.probe.api import base_url
from serving.watch import record, watch
from serving.watch.looking import Engine
from serving.watch.machine import Act, Limits, Phase
from serving.watch.meters import Meters
from serving.watch.record import Record
from serving.watch.subject import ContainerSubject, ServerSubject, Subject
from serving.watch.watch import Watch
from tests.release.toy import LINE, document, moet
from tests.standin.engine import serving_dockerd
from tests.standin.host import Host, enter, make_host
from tools.cli.output import Output
from tools.moet.verbs import serve_watch

# Nobody hangs: a machine that is busy keeps a server waiting as well.
LIMITS = Limits(stall=120, canary=30, first_delay=0.5, last_delay=1, starts=2, settle=1)
HANGS = replace(LIMITS, stall=6, canary=1.5)
PATIENCE_SECONDS = 240
QUICK = ("--interval=0.3", "--starts=1")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that serves."""
    with serving_dockerd() as engine, pytest.MonkeyPatch.context() as patch:
        made = make_host(tmp_path_factory.mktemp("host"), engine)
        enter(made, patch)
        # The stand-in leaves when it is told to, unless it hangs.
        patch.setattr(watch, "_STOP_SECONDS", 3)
        made.behave()
        up(made, LINE, "--no-preflight")
        yield made


@pytest.fixture
def host(served: Host) -> Host:
    """A host that serves, and has not been watched."""
    served.behave()
    up(served, "--no-preflight", "--yes")
    record.path(LINE).unlink(missing_ok=True)
    for file in saved_logs.folder(LINE).glob("*"):
        file.unlink()
    return served


def up(host: Host, *words: str) -> None:
    status, _, err = moet(*host.serve("up", *words))
    assert status == 0, err


class Watching:
    """A watchdog in this process, and what it has done."""

    def __init__(self, subject: Subject, limits: Limits = LIMITS) -> None:
        self.watch = Watch(subject, Engine(None), limits, Meters(subject.name), lambda: None, Output())
        self.done: list[Act] = []

    def until(self, *phases: Phase, while_: Callable[[], bool] = lambda: True) -> None:
        """Watches until the server is in one of the phases (ready: attested too), or gave up, while `while_` holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while while_():
            act = self.watch.step()
            if act not in ("wait", "canary"):
                self.done.append(act)
            phase = self.watch.memory.phase
            if phase == "gave up" or (phase in phases and (phase != "ready" or self.watch.ready)):
                return
            assert time.monotonic() < deadline, f"is {phase}, after {self.done}"
            time.sleep(0.2)

    @property
    def generation(self) -> int:
        """The generation that is watched."""
        assert self.watch.record and self.watch.record.generation
        return self.watch.record.generation

    def stays(self, phase: Phase, seconds: float) -> None:
        """Watches for so long, in which nothing is done."""
        end, before = time.monotonic() + seconds, len(self.done)
        self.until(while_=lambda: time.monotonic() < end)
        assert self.watch.memory.phase == phase and len(self.done) == before


@pytest.fixture
def watching(host: Host) -> Watching:
    """A watchdog of a server that is ready."""
    made = Watching(ServerSubject(LINE, host.toy.root))
    made.until("ready")
    assert made.done == []
    return made


def container(host: Host) -> Container:
    return host.docker.client.containers.get(LINE)


def kill(host: Host) -> None:
    """A process that dies by itself, as far as the engine can tell."""
    os.kill(int(container(host).attrs["State"]["Pid"]), 9)


def logs() -> list[str]:
    return [file.read_text() for file in sorted(saved_logs.folder(LINE).glob("*"))]


def test_a_crash(host: Host, watching: Watching) -> None:
    kill(host)
    watching.until("waiting")
    watching.until("ready")
    assert watching.done == ["end", "start"]
    (log,) = logs()
    assert "it ended by itself (status 137)" in log and "attested" in log and "POST /v1/completions" in log


def test_a_hang_while_health_is_200(host: Host, watching: Watching) -> None:
    host.behave(hang_after_requests=0)
    watching.watch.limits = HANGS
    watching.until("waiting")
    watching.watch.limits = LIMITS
    host.behave()
    watching.until("ready")
    assert watching.done == ["end", "start"]
    assert "it hangs" in logs()[0] and "canary failed" in logs()[0]


def test_a_slow_start_is_no_hang(host: Host, watching: Watching) -> None:
    host.behave(hang_at="weights")
    kill(host)
    watching.until("starting")
    watching.watch.limits = HANGS
    watching.stays("starting", HANGS.stall + 1)
    watching.watch.limits = LIMITS
    host.behave()
    watching.until("ready")
    assert watching.done == ["end", "start"]


def test_a_start_that_never_ends(host: Host) -> None:
    host.behave(hang_at="weights")
    kill(host)
    watching = Watching(ServerSubject(LINE, host.toy.root, deadline=3))
    watching.until("starting")
    watching.until("waiting")
    assert watching.done == ["end", "start", "end"]
    assert "did not become ready in time" in logs()[1]
    host.behave()
    again = Watching(ServerSubject(LINE, host.toy.root))
    again.until("ready")
    assert again.done == ["end", "start"]


def test_a_loop_ends(host: Host, watching: Watching) -> None:
    # Without a limit of its own it would take all of this machine's memory.
    container(host).update(mem_limit="200m", memswap_limit="200m")
    host.behave(oom_at={"phase": "weights", "how": "kill"})
    kill(host)
    watching.until("gave up")
    assert watching.done == ["end", "start", "end", "start", "give up"]
    assert len(logs()) == 3 and "the kernel killed it for want of memory (status 137)" in logs()[2]
    found = Record.read(LINE)
    assert found is not None and found.phase == "gave up" and "`moet serve rollback` goes back" in found.why
    status, out, _ = moet(*host.serve("watch", "--once"))
    assert status == 1 and "its watchdog gave up" in out


def test_a_refusal_is_final(host: Host, watching: Watching) -> None:
    host.behave(fail_at={"phase": "program", "status": 3})
    kill(host)
    watching.until("gave up")
    assert watching.done == ["end", "start", "give up"]
    assert watching.watch.record and "the image differs from its manifest" in watching.watch.record.why


def test_docker_stop_is_not_fought(host: Host, watching: Watching) -> None:
    container(host).stop(timeout=5)
    watching.until("stopped")
    watching.stays("stopped", 2)
    again = Watching(ServerSubject(LINE, host.toy.root))
    again.stays("stopped", 2)
    container(host).start()
    again.until("ready")
    # Else it may be ready before it is looked at.
    host.behave(hang_at="weights")
    container(host).restart(timeout=5)
    again.until("starting")
    host.behave()
    again.until("ready")
    container(host).pause()
    again.until("held")
    container(host).unpause()
    again.until("ready")
    container(host).remove(force=True)
    again.until("absent")
    assert watching.done == again.done == []


def test_an_engine_that_is_restarted(host: Host, watching: Watching) -> None:
    host.docker.daemon.stop()
    watching.until("unreachable")
    watching.stays("unreachable", 2)
    host.docker.start()
    watching.until("waiting", "ready")
    watching.until("ready")
    assert watching.done == ["end", "start"] and watching.watch.memory.reason == "found down"


def test_commands_are_respected(host: Host, watching: Watching) -> None:
    before = watching.generation
    for words, after in (
        (("down",), "down"),
        (("up",), "ready"),
        (("switch", "VLLM_MOET_NATIVE_NEXT_N=1", "--yes"), "ready"),
        (("rollback", "--yes"), "ready"),
    ):
        command = [sys.executable, "-m", "tools.moet.main", *host.serve(*words)]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        watching.until(while_=lambda running=running: running.poll() is None)  # type: ignore[misc]
        assert running.returncode == 0, running.communicate()[1]
        watching.until("down" if after == "down" else "ready")
    assert watching.done == []
    assert watching.generation == before + 2


def test_beside_another_supervisor(host: Host) -> None:
    """`docker run --rm`, as a systemd unit has it: ended when it hangs, and started by whoever ran it."""
    assert moet(*host.serve("down"))[0] == 0
    done = document(*host.serve("print", LINE, "--set", "NAME=beside"))
    command = [*done["command"][:2], "--rm", *done["command"][2:]]
    subprocess.run(command, check=True, capture_output=True)
    watching = Watching(ContainerSubject("beside", base_url("127.0.0.1", host.port)))
    watching.until("ready")
    host.behave(hang_after_requests=0)
    watching.watch.limits = HANGS
    watching.until("absent")
    watching.watch.limits = LIMITS
    host.behave()
    subprocess.run(command, check=True, capture_output=True)
    watching.until("ready")
    assert watching.done == ["end"]
    host.docker.client.containers.get("beside").remove(force=True)


def test_the_command(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert moet(*host.serve("watch", "--once"))[:2] == (0, f"{LINE}: ready\n")
    found = document(*host.serve("watch", "--once"))
    assert found["ready"] and found["attested"]["tag"] == "toy:vllm0.33.0-r1" and found["canary_seconds"] > 0
    assert moet(*host.serve("down"))[0] == 0
    status, out, _ = moet(*host.serve("watch", "--once", "--json"))
    assert (status, json.loads(out)["ready"]) == (1, False)
    host.behave()
    up(host)
    command = [sys.executable, "-m", "tools.moet.main", *host.serve("watch", *QUICK)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert running.stderr.readline() == f"{LINE}: ready\n"
    running.terminate()
    assert running.communicate(timeout=PATIENCE_SECONDS)[1] == "moet serve watch: terminated\n"
    assert running.returncode == 143
    host.behave(fail_at={"phase": "weights", "status": 1})
    kill(host)
    told = serve_watch._limits
    monkeypatch.setattr(serve_watch, "_limits", lambda options: replace(told(options), first_delay=LIMITS.first_delay))
    status, _, err = moet(*host.serve("watch", *QUICK))
    assert status == 3 and "gave up" in err.splitlines()[-1]
