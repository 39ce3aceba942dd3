"""The layer of kernels as an image has it: what it holds, and that Python imports it by its name there."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SITE = "usr/local/lib/python3.11/dist-packages"
FAMILIES = ("mxfp8_gemv", "skinny_gemm")


@pytest.fixture(scope="module")
def members() -> dict[str, tarfile.TarInfo]:
    """The layer's files by their path below the package."""
    with tarfile.open(os.environ["LAYER"]) as tar:
        return {info.name.removeprefix(f"{SITE}/moet_kernels/"): info for info in tar if info.isfile()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the layer unpacked."""
    root = tmp_path_factory.mktemp("root")
    with tarfile.open(os.environ["LAYER"]) as tar:
        tar.extractall(root)
    return root / SITE


def python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs an interpreter that has the package, torch and numpy."""
    environment = {"PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "PYTHONSAFEPATH": "1", "PATH": os.defpath}
    command = [sys.executable, "-B", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_holds_the_families_that_steps_name_and_what_they_share(members: dict[str, tarfile.TarInfo]) -> None:
    families = {f"{family}/{file}" for family in FAMILIES for file in (f"{family}.so", "op.py", "reference.py")}
    cases = {f"selftest/cases/{family}.py" for family in FAMILIES}
    shared = {"__init__.py", "common/formats.py", "common/scale_layouts.py", "extension/library.py"}
    assert members.keys() >= families | cases | shared | {"selftest/__main__.py", "selftest/main.py"}
    assert {name for name in members if name.endswith(".so") or "/cases/" in name or "/op.py" in name} == {
        *cases,
        *(name for name in families if not name.endswith("reference.py")),
    }


def test_holds_nothing_of_the_workshop(members: dict[str, tarfile.TarInfo]) -> None:
    names = {name.rpartition("/")[2] for name in members}
    assert not {name for name in names if name.startswith(("test_", "bench", "conftest"))}
    assert {name.rpartition(".")[2] for name in names} == {"py", "so"}
    assert {(info.mode, info.uid, info.gid) for info in members.values()} == {(0o644, 0, 0)}


@pytest.mark.parametrize("family", FAMILIES)
def test_operator_is_there_under_the_name_of_the_image(site: Path, family: str) -> None:
    code = f"import moet_kernels.{family}.op, torch; print(torch.ops.moet.{family}.default)"
    done = python(site, "-c", code)
    assert (done.returncode, done.stdout) == (0, f"moet.{family}.default\n"), done.stderr


def test_self_test_knows_the_families_and_sees_no_gpu(site: Path) -> None:
    done = python(site, "-m", "moet_kernels.selftest")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("moet: selftest: torch sees no GPU: expected one; ")
    assert "{mxfp8_gemv,skinny_gemm}" in python(site, "-m", "moet_kernels.selftest", "--help").stdout
