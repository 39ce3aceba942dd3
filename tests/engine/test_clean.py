"""The engines of the tests leave no mount, process or folder behind, also when a test fails in the middle."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.engine import scratch
from tests.engine.engines import EngineUnavailableError, loopback_registry, private_dockerd, private_podman
from tests.engine.synthetic import make_layout

_HANGS = """
import time
from tests.engine.engines import private_dockerd
with private_dockerd() as engine:
    print(engine.runtime, flush=True)
    time.sleep(60)
"""


class _InterruptedError(Exception):
    pass


def _leftovers(paths: list[Path]) -> dict[str, object]:
    found = {str(path): (path.exists(), scratch.mounts_below(path), scratch.processes_naming(path)) for path in paths}
    return {path: left for path, left in found.items() if any(left)}


def test_dockerd_is_gone_after_a_failure() -> None:
    paths: list[Path] = []
    with suppress(_InterruptedError), private_dockerd() as engine:
        paths = [engine.runtime, engine.data.parent]
        assert scratch.processes_naming(engine.runtime)
        raise _InterruptedError
    assert len(paths) == 2 and _leftovers(paths) == {}


def test_networks_go_with_their_dockerd() -> None:
    with suppress(_InterruptedError), private_dockerd() as engine:
        network = engine.client.networks.create("left-behind")
        bridge = Path("/sys/class/net", f"br-{str(network.id)[:12]}")
        assert bridge.exists()
        raise _InterruptedError
    assert not bridge.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_dockerd_stops_with_its_test(number: signal.Signals, tmp_path: Path) -> None:
    """Bazel ends a test that takes too long with the one signal, then the other."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TEST_TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", _HANGS], env=environment, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout
        runtime = Path(test.stdout.readline().strip())
        test.send_signal(number)
    deadline = time.monotonic() + 120
    while scratch.processes_naming(runtime) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert scratch.processes_naming(runtime) == []
    if number == signal.SIGTERM:
        assert _leftovers([runtime]) == {} and list(tmp_path.iterdir()) == []
    else:
        scratch.unmount_below(runtime)
        shutil.rmtree(runtime)


def test_podman_is_gone_after_a_failure(tmp_path: Path) -> None:
    directory = make_layout(tmp_path / "layout", "line:r1", [{"a": b"1"}])
    paths: list[Path] = []
    with suppress(_InterruptedError), private_podman() as engine:
        paths = [engine.data, engine.runtime]
        assert engine("pull", f"oci:{directory}").returncode == 0
        assert (engine.data / "graph").is_dir()
        raise _InterruptedError
    assert len(paths) == 2 and _leftovers(paths) == {}


def test_registry_is_gone_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TMPDIR", str(tmp_path))
    with suppress(_InterruptedError), loopback_registry():
        assert len(scratch.processes_naming(tmp_path)) == 1
        raise _InterruptedError
    assert list(tmp_path.iterdir()) == []
    assert scratch.processes_naming(tmp_path) == []


def test_mounts_in_a_folder_are_undone() -> None:
    with scratch.folder() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        assert scratch.mounts_below(folder) == [str(folder)]
    assert not folder.exists() and scratch.mounts_below(folder) == []


def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.engine.engines.PATH", "/nowhere")
    with pytest.raises(EngineUnavailableError, match=r"apt-get install docker\.io"), private_dockerd():
        pass
