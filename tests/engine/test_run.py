"""What the image says about itself, and that it runs as little as it may: no root, nothing written, no capability."""

import json

import pytest

from images.engine.layout import Image
from images.engine.result import LoadResult
from tests.engine.containers import Container, DockerRunner, Outcome
from tests.engine.engines import Dockerd
from tests.engine.programs import PYTHON, Programs

_WHO = "import json, os; print(json.dumps({'uid': os.getuid(), 'gid': os.getgid(), 'home': os.environ['HOME']}))"
_PLATFORM = """
import json, vllm
from vllm.platforms import current_platform as platform
print(json.dumps({"type": type(platform).__name__, "family_120": platform.is_device_capability_family(120)}))
"""


def test_labels_and_settings_are_the_layouts(
    dockerd: Dockerd, docker: DockerRunner, loaded: LoadResult, image: Image
) -> None:
    config = json.loads(image.config.path.read_bytes())
    found = dockerd.client.images.get(loaded.image_id)
    assert found.labels == config["config"]["Labels"]
    assert found.attrs["RootFS"]["Layers"] == config["rootfs"]["diff_ids"]
    manifest = json.loads(docker.run(Container(["manifest"])).output)
    assert found.labels["org.moet.line"] == manifest["line"]
    assert found.labels["org.moet.tag"] == manifest["tag"]
    steps = ",".join(f"{step['number']}:{step['name']}" for step in manifest["steps"])
    assert found.labels["org.moet.steps"] == steps


def test_runs_as_the_user_moet(docker: DockerRunner) -> None:
    document = docker.run(Container(["-c", _WHO], entrypoint=PYTHON)).document()
    assert document == {"uid": 1000, "gid": 1000, "home": "/var/lib/moet"}


@pytest.mark.parametrize("user", ["1000:1000", "0:0"])
def test_attests_and_starts_python_hardened(docker: DockerRunner, user: str) -> None:
    command = ["exec", "python3.11", "-c", "import torch; print(torch.__version__)"]
    outcome = docker.run(Container(command, hardened=True, user=user))
    assert outcome.status == 0, outcome.tail()
    assert "attested" in outcome.errors and outcome.output.startswith("2.")


def test_vllm_takes_its_sm_120_paths(docker: DockerRunner, programs: Programs) -> None:
    document = docker.run(programs.python(_PLATFORM)).document()
    assert document == {"type": "NvmlCudaPlatform", "family_120": True}


@pytest.mark.job("serve-help")
def test_serves_help_through_the_entry_point_hardened(outcome: Outcome) -> None:
    assert outcome.status == 0, outcome.tail()
    assert "usage: vllm serve" in outcome.output
    assert "attested" in outcome.errors
