"""The image attests itself, and refuses to serve once a byte of it is another."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.containers import Container, DockerRunner, Outcome
from tests.engine.programs import MANIFEST, PYTHON, SITE

_REFUSED = 3
_UNTESTED = 5
_SELFTEST = {"VLLM_MOET_SELFTEST": "1"}
_OPERATORS = """
import importlib, sys, torch
for family in sys.argv[1:]:
    importlib.import_module(f"moet_kernels.{family}.op")
    print(getattr(torch.ops.moet, family).default)
"""


@pytest.fixture(scope="module")
def manifest(docker: DockerRunner) -> dict[str, Any]:
    outcome = docker.run(Container(["manifest"]))
    assert outcome.status == 0, outcome.tail()
    document: dict[str, Any] = outcome.json()
    return document


@pytest.fixture(scope="module")
def families(manifest: dict[str, Any]) -> list[str]:
    """The families of kernels that the image's steps name."""
    named = sorted({family for step in manifest["steps"] for family in step["kernels"]})
    if not named:
        pytest.skip("no step of this image has kernels")
    return named


def _attest(docker: DockerRunner, **changes: Any) -> Outcome:
    return docker.run(Container(["attest", "--json"], **changes))


def _altered(docker: DockerRunner, path: str, target: Path) -> Path:
    """The file as it is in the image, but for the last bit of its middle byte."""
    code = f"import sys; sys.stdout.write(open({path!r}, 'rb').read().hex())"
    data = bytearray.fromhex(docker.run(Container(["-c", code], entrypoint=PYTHON)).output)
    data[len(data) // 2] ^= 1
    target.write_bytes(data)
    target.chmod(0o644)
    return target


def test_passes_and_reports_the_steps(docker: DockerRunner, manifest: dict[str, Any]) -> None:
    outcome = _attest(docker)
    assert outcome.status == 0, outcome.tail()
    report = outcome.json()
    assert report["ok"] and report["tag"] == manifest["tag"] and report["mismatches"] == []
    assert [step["name"] for step in report["steps"]] == [step["name"] for step in manifest["steps"]]
    assert {step["name"]: step["live"] for step in report["steps"]} == {
        step["name"]: step["default"] != "0" for step in manifest["steps"]
    }


def test_reports_a_switch_that_is_off(docker: DockerRunner, manifest: dict[str, Any]) -> None:
    switch = manifest["steps"][0]["switch"]
    report = _attest(docker, environment={switch: "0"}).json()
    assert {step["switch"]: step["live"] for step in report["steps"]}[switch] is False


def test_refuses_on_one_changed_byte_of_an_overlaid_file(
    docker: DockerRunner, manifest: dict[str, Any], tmp_path: Path
) -> None:
    path = next(entry["path"] for entry in manifest["files"] if entry["kind"] == "overlay")
    mounts = {path: _altered(docker, path, tmp_path / "altered.py")}
    outcome = _attest(docker, mounts=mounts)
    assert outcome.status == _REFUSED, outcome.tail()
    assert path in [mismatch["subject"] for mismatch in outcome.json()["mismatches"]]
    served = docker.run(Container(["serve", "--help"], mounts=mounts))
    assert served.status == _REFUSED and f"MISMATCH {path}" in served.errors.replace("file ", "")


def test_refuses_on_one_changed_byte_of_a_kernel(docker: DockerRunner, families: list[str], tmp_path: Path) -> None:
    path = f"{SITE}/moet_kernels/{families[0]}/{families[0]}.so"
    mounts = {path: _altered(docker, path, tmp_path / "altered.so")}
    outcome = _attest(docker, mounts=mounts)
    assert outcome.status == _REFUSED, outcome.tail()
    assert [mismatch["subject"] for mismatch in outcome.json()["mismatches"]] == [path]


def test_counts_the_kernels(docker: DockerRunner, families: list[str], manifest: dict[str, Any]) -> None:
    kernels = [entry["path"] for entry in manifest["files"] if entry["kind"] == "kernel"]
    libraries = [f"{SITE}/moet_kernels/{family}/{family}.so" for family in families]
    assert [path for path in kernels if path.endswith(".so")] == libraries
    assert _attest(docker).json()["files"]["kernel"] == len(kernels)
    assert f"({len(kernels)} kernel, " in docker.run(Container(["attest"])).output


def test_refuses_kernels_from_elsewhere(docker: DockerRunner, families: list[str]) -> None:
    outcome = _attest(docker, environment={"MOET_KERNELS": "/tmp"})
    assert outcome.status == _REFUSED, outcome.tail()
    assert [mismatch["subject"] for mismatch in outcome.json()["mismatches"]] == ["MOET_KERNELS"]


def test_kernels_load_into_the_images_torch(docker: DockerRunner, families: list[str]) -> None:
    outcome = docker.run(Container(["exec", "python3.11", "-c", _OPERATORS, *families]))
    assert outcome.status == 0, outcome.tail()
    assert outcome.output.split() == [f"moet.{family}.default" for family in families]


@pytest.mark.usefixtures("families")
def test_self_test_without_a_gpu_refuses(docker: DockerRunner) -> None:
    outcome = docker.run(Container(["serve", "--help"], environment=_SELFTEST))
    assert (outcome.status, outcome.output) == (_UNTESTED, ""), outcome.tail()
    said = outcome.errors.splitlines()[-1]
    assert said.startswith("moet: refused: the kernels could not be tested: torch sees no GPU: expected one; ")


def test_self_test_without_kernels_tests_nothing(base: DockerRunner) -> None:
    outcome = base.run(Container(["exec", "env"], environment=_SELFTEST))
    assert outcome.status == 0, outcome.tail()
    assert "moet: selftest: no step of this image has kernels: nothing to test" in outcome.errors
    assert "VLLM_MOET_SELFTEST" not in outcome.output + outcome.errors


def test_refuses_an_altered_manifest(docker: DockerRunner, tmp_path: Path) -> None:
    mounts = {MANIFEST: _altered(docker, MANIFEST, tmp_path / "manifest.json")}
    outcome = _attest(docker, mounts=mounts)
    assert outcome.status == _REFUSED, outcome.tail()
    assert MANIFEST in outcome.output


def test_reading_the_manifest_imports_no_vllm(docker: DockerRunner, manifest: dict[str, Any], tmp_path: Path) -> None:
    """With vLLM's package hidden behind an empty folder the manifest can still be read."""
    outcome = docker.run(Container(["steps", "--json"], mounts={f"{SITE}/vllm": tmp_path}))
    assert outcome.status == 0, outcome.tail()
    numbers = [step["number"] for step in outcome.json()]
    assert numbers == [step["number"] for step in manifest["steps"]]


def test_the_image_without_steps_attests_too(base: DockerRunner) -> None:
    report = base.run(Container(["attest", "--json"])).json()
    assert report["ok"] and report["steps"] == []
