"""Bisecting with a real Docker: what COMMAND is given is an image there."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from releases.testing.toy import Toy
from tests.engine.engines import Dockerd, private_dockerd
from tools.moet import main as program

# Bad while the step is in the image and not switched off; the engine is asked, by the name that COMMAND got.
CHECK = """
import docker, os, sys
sys.stderr.write(sys.argv[1] + " ")
image = docker.DockerClient(base_url=os.environ["HOST"]).images.get(sys.argv[1])
steps = image.labels.get("org.moet.steps", "")
off = os.environ.get("VLLM_MOET_CULPRIT") == "0"
assert off == ("VLLM_MOET_CULPRIT=0" in sys.argv[2:])
sys.exit(1 if "culprit" in steps and not off else 0)
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Dockerd]:
    with private_dockerd() as running:
        yield running


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, engine: Dockerd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("HOST", engine.host)
    monkeypatch.setenv("PYTHONPATH", ":".join(entry for entry in sys.path if entry))
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.delenv("BUILD_WORKSPACE_DIRECTORY", raising=False)


@pytest.mark.parametrize("switch", [True, False])
def test_images_are_in_the_engine(
    switch: bool, tmp_path: Path, engine: Dockerd, capfd: pytest.CaptureFixture[str]
) -> None:
    for image in engine.client.images.list():
        engine.client.images.remove(str(image.id), force=True)
    toy = Toy(tmp_path / "tree")
    if not switch:
        made = "synthetic.step(one.number, one.name, "
        toy.edit("bazelw", made, f"{made}switch=None, ")
    for number, steps in ((1, {1: "a"}), (2, {1: "a", 3: "b", 4: "culprit", 5: "c"})):
        toy.line(number, steps)
        toy.write("patches/vllm-0.33.0/series", "".join(f"{name}.patch\n" for name in steps.values()))
        for name in steps.values():
            toy.write(f"patches/vllm-0.33.0/{name}.patch", name)
        toy.commit(f"r{number}")
        toy.release()
    ends = ["--good", "toy:vllm0.33.0-r1", "--bad", "toy:vllm0.33.0-r2", "--engine", "docker", "--host", engine.host]
    words = ["release", "bisect", "--json", "--tree", str(toy.root), *ends]
    status = program.main([*words, "--", sys.executable, "-c", CHECK, "{image}", "{env}"])
    out, err = capfd.readouterr()
    assert status == 0, err
    found = json.loads(out)
    assert found["step"]["name"] == "culprit"
    assert found["how"] == ("switches" if switch else "rebuilt")
    held = {tag for image in engine.client.images.list() for tag in image.tags}
    assert held == set(found["left_in_engine"])
    assert {"toy:vllm0.33.0-r1", "toy:vllm0.33.0-r2"} <= held
    assert any("-bisect-" in name for name in held) == (not switch)
