"""The program's container on a real engine: of an image of Moet's kind, without torch and without GPUs."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.engine import layout
from images.engine.docker_engine import DockerEngine
from images.engine.errors import EngineError
from serving.containers.containers import Containers
from serving.launch.launch import Launch
from serving.preflight import all_reduce, collective_run
from serving.preflight.collective_result import Document
from serving.preflight.collective_run import NoResultError
from serving.preflight.host import Host
from serving.preflight.made_up import IMAGE, FakeDocker, card, checkpoint, smi, subject
from tests.engine.engines import Dockerd
from tests.engine.loading import load
from tests.standin.engine import serving_dockerd
from tests.standin.image import make_layout


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    with serving_dockerd() as engine:
        made = make_layout(tmp_path_factory.mktemp("image") / "layout", IMAGE)
        load(DockerEngine(engine.host), layout.read(made), IMAGE)
        yield engine


@pytest.fixture
def containers(dockerd: Dockerd) -> Iterator[Containers]:
    engine = Containers(dockerd.host)
    yield engine
    assert engine.labelled(collective_run.LABELS) == []
    engine.close()


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return subject(checkpoint(tmp_path / "model")).launch


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(collective_run, "text", lambda: text)


def test_program_runs_behind_the_entry_point(containers: Containers, launch: Launch) -> None:
    assert collective_run.run(containers, launch, 4, 1) == Document("moet.all-reduce.v1", False, None, ())


def test_check_says_what_the_image_lacks(dockerd: Dockerd, tmp_path: Path) -> None:
    cards = "".join(card(number) for number in range(4))
    host = Host(run=smi(tmp_path / "bin", cards), containers=lambda: Containers(dockerd.host))
    said: list[str] = []

    def doing(what: str) -> contextlib.AbstractContextManager[None]:
        said.append(what)
        return contextlib.nullcontext()

    (result,) = all_reduce.check(subject(checkpoint(tmp_path / "model")), host, FakeDocker(), doing)
    assert (result.state, result.what) == ("skipped", f"{IMAGE} has no torch")
    assert said == ["all-reduce: GPU 0, 1, 2, 3, about a minute; 10 where they hang"]


def test_container_has_loopback_alone_and_only_what_decides_the_way(
    containers: Containers, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = "os.listdir('/sys/class/net'), sorted(os.environ), os.path.exists('/model')"
    program(monkeypatch, f"import os; print({seen}); raise SystemExit(9)")
    with pytest.raises(NoResultError) as caught:
        collective_run.run(containers, launch, 4, 1, {"NCCL_P2P_DISABLE": "1"})
    said = str(caught.value)
    assert said.startswith("ended without a result, status 9; the last it wrote: ['lo'] [") and said.endswith("] False")
    assert "'NCCL_P2P_DISABLE', 'NCCL_P2P_LEVEL'" in said and "VLLM_ENGINE" not in said


def test_hang_is_killed(containers: Containers, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    ignoring = "import signal, time; signal.signal(15, signal.SIG_IGN); print('here', flush=True); time.sleep(3600)"
    program(monkeypatch, ignoring)

    def clock() -> float:
        return 4.0 if any("here" in one.logs() for one in containers.labelled(collective_run.LABELS)) else 0.0

    monkeypatch.setattr(collective_run, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    with pytest.raises(NoResultError, match="no end within 3 s, and was killed; the last it wrote: here"):
        collective_run.run(containers, launch, 4, 1, seconds=3)


def test_image_that_does_not_attest(containers: Containers, launch: Launch) -> None:
    other = replace(launch, docker_options=(f"--env=MOET_MANIFEST_SHA256={'0' * 64}",))
    with pytest.raises(NoResultError, match="status 3; the last it wrote: moet: 1 mismatch: refused: "):
        collective_run.run(containers, other, 4, 1)


def test_container_that_cannot_be_made_or_started(containers: Containers, launch: Launch) -> None:
    with pytest.raises(EngineError, match="no:such"):
        collective_run.run(containers, replace(launch, image="no:such"), 4, 1)
    with pytest.raises(EngineError, match="did not start container"):
        collective_run.run(containers, replace(launch, docker_options=("--entrypoint=/no/such",)), 4, 1)


_INTERRUPTED = """
import sys
from serving.containers.containers import Containers
from serving.preflight import collective_run
from serving.preflight.made_up import subject
from pathlib import Path
collective_run.text = lambda: "import time; time.sleep(3600)"
collective_run.run(Containers(sys.argv[1]), subject(Path(sys.argv[2])).launch, 4, 1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupt_leaves_nothing_and_a_kill_is_cleared_later(
    number: signal.Signals, dockerd: Dockerd, containers: Containers, launch: Launch, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", _INTERRUPTED, dockerd.host, str(tmp_path / "model")]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        while not any(one.state().running for one in containers.labelled(collective_run.LABELS)):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(60)
    if number is signal.SIGKILL:
        (left,) = containers.labelled(collective_run.LABELS)
        with pytest.raises(collective_run.BusyError, match=r"^dsv41.all-reduce runs: another preflight's"):
            collective_run.run(containers, launch, 4, 1)
        left.kill()
        assert not collective_run.run(containers, launch, 4, 1).torch
