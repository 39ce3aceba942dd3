"""Starts of the stand-in in a real engine: what they are waited for, why they fail, and what their caches remember."""

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving.containers.container import Container
from serving.containers.containers import Containers
from serving.launch import settings
from serving.launch.launch import Launch
from serving.launch.plan import plan
from serving.preflight.host import Host as Machine
from serving.probe.api import Api
from serving.profiles import load
from serving.profiles.model import Start
from serving.startup import cache_key, made_up
from serving.startup.cache_key import CacheKey
from serving.startup.failure import StartFailedError
from serving.startup.first_start import tuning
from serving.startup.waiting import Started, wait_ready
from tests.engine.engines import Dockerd
from tests.release.toy import LINE, R1
from tests.standin.engine import serving_dockerd
from tests.standin.host import Host, make_host
from tests.standin.server import startup
from tools.cli.output import Output

Make = Callable[..., Container]
# Soon, also on a machine that is busy.
SOON = Start(2, 120)


@pytest.fixture(scope="module")
def docker() -> Iterator[Dockerd]:
    with serving_dockerd() as engine:
        yield engine


@pytest.fixture(scope="module")
def host(docker: Dockerd, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return make_host(tmp_path_factory.mktemp("host"), docker)


@pytest.fixture
def containers(docker: Dockerd) -> Iterator[Containers]:
    engine = Containers(docker.host)
    yield engine
    engine.close()


def chosen(host: Host, *given: str) -> settings.Settings:
    return settings.resolve(load.load(LINE, host.toy.root), given, host.environment)


def launched(asked: settings.Settings) -> Launch:
    return plan(asked, R1, None, "published").launch


@pytest.fixture
def make(host: Host, containers: Containers) -> Iterator[Make]:
    """Makes a container that is not started: of settings, with a stand-in that behaves."""
    made: list[Container] = []

    def of(*given: str, **how: object) -> Container:
        host.behave(**how)
        made.append(containers.create(launched(chosen(host, *given)), f"start{len(made)}", {}, None))
        return made[-1]

    yield of
    for one in made:
        one.remove()


def wait(host: Host, container: Container, expected: Start = SOON) -> Started:
    container.start()
    return wait_ready(container, Api.of(launched(chosen(host)), None), expected, Output(), "it")


def until_said(container: Container, what: str) -> None:
    """Waits until its log has it."""
    following = container.follow()
    assert any(what in line for line in following), f"ended before {what!r}"
    following.close()


def age(container: Container) -> float:
    """Seconds since it was started."""
    started = container.state().started_at
    assert started is not None
    return time.time() - started


def failure(host: Host, container: Container, expected: Start = SOON) -> StartFailedError:
    with pytest.raises(StartFailedError) as error:
        wait(host, container, expected)
    assert "\n" not in str(error.value)
    return error.value


def test_every_phase_is_seen(host: Host, make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    started = wait(host, make(start_seconds=2))
    assert list(started.phases) == [name for name in dict.fromkeys(made_up.PHASES) if name != "up"]
    assert started.readiness.attested is not None and started.readiness.attested.tag == R1
    said = capsys.readouterr().err
    assert ": weights (4 of 11)" in said and ": autotune (8 of 11)" in said


@pytest.mark.parametrize(
    ("given", "how", "reason", "phase", "said"),
    [
        (["GPU_MEM_UTIL=0.95"], {"refuse_above_util": 0.94}, "out of memory", None, "lower"),
        ([], {"oom_at": {"phase": "autotune", "how": "cuda"}}, "out of memory", "autotune", "lower GPU_MEM_UTIL"),
        (["EXTRA_DOCKER_ARGS=-m 96m"], {"oom_at": {"phase": "cache", "how": "kill"}}, "out of memory", "cache", "dmes"),
        ([], {"fail_at": {"phase": "weights", "status": 7}}, "crashed", "weights", "exit status 7"),
    ],
)
def test_failures(
    host: Host, make: Make, given: list[str], how: dict[str, object], reason: str, phase: str | None, said: str
) -> None:
    found = failure(host, make(*given, **how))
    assert (found.reason, phase or found.phase.name) == (reason, found.phase.name), str(found)
    assert said in str(found)
    assert found.tail


def test_deadline(host: Host, make: Make) -> None:
    container = make(hang_at="graphs")
    found = failure(host, container, Start(1, 4))
    assert found.reason == "deadline" and found.seconds >= 4
    assert container.state().running


def test_server_that_listens_and_gives_no_token_is_not_ready(host: Host, make: Make) -> None:
    container = make(hang_after_requests=0)
    container.start()
    until_said(container, "Application startup complete.")
    found = failure_of_running(host, container, Start(1, math.ceil(age(container)) + 2))
    assert (found.reason, found.phase.name) == ("deadline", "up")
    assert "/v1/completions" in str(found)


def test_killed(host: Host, make: Make) -> None:
    container = make(hang_at="weights")
    container.start()
    until_said(container, "Loading model from scratch...")
    container.kill()
    found = failure_of_running(host, container)
    assert (found.reason, found.phase.name, found.exit_code) == ("crashed", "weights", 137)


def failure_of_running(host: Host, container: Container, expected: Start = SOON) -> StartFailedError:
    with pytest.raises(StartFailedError) as error:
        wait_ready(container, Api.of(launched(chosen(host)), None), expected, Output(), "it")
    return error.value


def test_removed(host: Host, make: Make) -> None:
    container = make()
    container.remove()
    assert failure_of_running(host, container).reason == "gone"


def test_never_started(host: Host, make: Make) -> None:
    assert "was never started" in str(failure_of_running(host, make()))


def test_entry_point_that_refuses(host: Host, make: Make) -> None:
    found = failure(host, make("EXTRA_DOCKER_ARGS=-e VLLM_MOET_REASONING_TIERS=7"))
    assert (found.reason, found.exit_code) == ("refused", 2)
    assert "VLLM_MOET_REASONING_TIERS='7': expected 0 (upstream's path) or 1" in str(found)


def test_processor_time(host: Host, make: Make) -> None:
    container = make()
    assert container.cpu_seconds() is None
    wait(host, container)
    used = container.cpu_seconds()
    assert used is not None and 0 < used < 60


def test_two_passes_of_a_first_start(host: Host, make: Make, containers: Containers, tmp_path: Path) -> None:
    os.chown(tmp_path, 1000, 1000)
    cold = f"CACHE_DIR={tmp_path}"
    asked = chosen(host, cold)
    first = tuning(asked)
    assert first is not None and first.by_name["GPU_MEM_UTIL"].text == "0.92"
    image = containers.image(R1)
    assert image is not None
    key = CacheKey.of(launched(asked), image, cache_key.gpu_models(launched(asked), Machine()))
    tune = make(cold, "GPU_MEM_UTIL=0.92", cold_util=0.93)
    served = make(cold, cold_util=0.93)
    assert cache_key.why(cache_key.read(served), key)
    # In one pass it would run out of memory, as this stand-in does with an empty cache.
    assert failure(host, served).reason == "out of memory"
    wait(host, tune)
    assert (tmp_path / startup.MARK).exists()
    tune.stop(5)
    cache_key.write(tune, key)
    assert cache_key.why(cache_key.read(served), key) == []
    assert (tmp_path / ".moet-cache.json").stat().st_uid == 1000
    assert wait(host, served).readiness.ok
    changed = CacheKey.of(launched(chosen(host, "MAX_NUM_SEQS=4")), image, key.gpus)
    assert cache_key.why(cache_key.read(served), changed) == ["--max-num-seqs: 8 -> 4"]
