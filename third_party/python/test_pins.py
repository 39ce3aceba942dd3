"""The commits that pin.bzl files state, against what the pinned wheels and the sdist say of themselves."""

import ast
import re
import tarfile
import zipfile
from pathlib import Path

PINS = Path("third_party")


def pin(name: str) -> dict[str, str]:
    """Returns the string fields of a pin.bzl's struct."""
    tree = ast.parse((PINS / name / "pin.bzl").read_text())
    call = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    assert isinstance(call, ast.Call)
    return {str(k.arg): str(k.value.value) for k in call.keywords if isinstance(k.value, ast.Constant)}


def member(project: str, path: str) -> str:
    """Returns the text of one file of the pinned wheel."""
    [wheel] = Path("external", f"pypi_dsv41_{project}").glob("*.whl")
    with zipfile.ZipFile(wheel) as source:
        return source.read(path).decode()


def assigned(text: str, name: str) -> str:
    """Returns the string that a module assigns to `name`."""
    found = re.search(rf"^(?:\w+ = )*{name}\b[^=\n]*= (?:\w+ = )*'?\"?([^'\"\n]+)", text, re.MULTILINE)
    assert found, name
    return found[1]


def test_vllm() -> None:
    text = member("vllm", "vllm/_version.py")
    assert assigned(text, "__version__") == pin("vllm")["version"]
    assert assigned(text, "__commit_id__") == "g" + pin("vllm")["commit"]


def test_flashinfer() -> None:
    text = member("flashinfer_python", "flashinfer/_build_meta.py")
    assert assigned(text, "__version__") == pin("flashinfer")["version"]
    assert assigned(text, "__git_commit__") == pin("flashinfer")["commit"]


def test_torch() -> None:
    text = member("torch", "torch/version.py")
    assert assigned(text, "__version__").partition("+")[0] == pin("torch")["version"]
    assert assigned(text, "git_version") == pin("torch")["commit"]


def test_deepgemm() -> None:
    [sdist] = Path("external/pypi_vllm_sdist").glob("*.tar.gz")
    with tarfile.open(sdist) as source:
        path = f"vllm-{pin('vllm')['version']}/cmake/external_projects/deepgemm.cmake"
        file = source.extractfile(path)
        assert file
        assert f'set(_DEEPGEMM_UPSTREAM_TAG "{pin("deepgemm")["commit"]}")' in file.read().decode()
    text = member("vllm", "vllm/third_party/deep_gemm/__init__.py")
    assert assigned(text, "__version__") == pin("deepgemm")["version"]
