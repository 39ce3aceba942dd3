import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from releases.ledger import artifacts, page
from releases.ledger.evidence import PATH, Evidence, Row
from tools.cli.errors import UserError

ROOT = Path("bazelw").resolve().parent


def read(path: str) -> bytes | None:
    return (ROOT / path).read_bytes() if (ROOT / path).is_file() else None


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence.read((ROOT / PATH).read_bytes())


def test_page_is_that_of_the_evidence(evidence: Evidence) -> None:
    assert (ROOT / page.PATH).read_text() == page.text(evidence), "bazel run //releases/ledger:rebuild -- --page"


def test_everything_that_the_line_builds_is_in_it(evidence: Evidence) -> None:
    expected = [one.name for one in artifacts.of_line(read, "dsv41", "//patches/vllm-0.33.0:overlay")]
    assert len(expected) >= 25
    named = [row.name for row in evidence.rows]
    assert [name for name in (*expected, *artifacts.DOCUMENTS, "docs/reference.md") if name not in named] == []


def test_layers_are_those_of_the_line() -> None:
    text = (ROOT / "images/dsv41/line.bzl").read_text()
    found = list(artifacts.groups(read, "dsv41"))
    assert len(found) == text.count("layer_group(\"") == len(set(found))


def test_kernels_are_those_of_the_tree() -> None:
    found = artifacts.kernel_families(read)
    assert found == sorted(path.parent.name for path in (ROOT / "kernels").glob("*/gate.json"))


def test_modules_are_those_of_the_tree() -> None:
    """Every python_extension that is not for tests alone is built twice, here and by //tests/reproducible."""
    assert artifacts.native_modules(read) == sorted(extensions())


def extensions() -> Iterator[str]:
    """Labels of the modules in C++ that BUILD files of the tree declare."""
    for top in sorted(ROOT.glob("[!.]*/")):
        for build in [] if top.is_symlink() else sorted(top.rglob("BUILD.bazel")):
            for node in ast.walk(ast.parse(build.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "python_extension":
                    words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    if "testonly" not in words:
                        yield f"//{build.parent.relative_to(ROOT)}:{ast.literal_eval(words['name'])}"


@pytest.mark.parametrize(
    ("steps", "layer"),
    [("step(number = 1)", False), ("step(kernels = [])", False), ('step(), step(kernels = ["moe_front"])', True)],
)
def test_layer_of_kernels_is_there_once_a_step_names_some(steps: str, layer: bool) -> None:
    text = f'L = line(groups = [layer_group("kernels", ["wheel"])], steps = [{steps}])'
    files = {"images/small/line.bzl": text, "kernels/families.bzl": 'FAMILIES = ["moe_front"]'}
    files["tools/native/modules.bzl"] = 'MODULES = ["//some/folder:one"]'
    found = artifacts.of_line(lambda path: files[path].encode() if path in files else None, "small", "//patches/x:o")
    assert ("//images/small:moet_kernels" in [one.target for one in found]) is layer
    assert [one.path for one in found if one.target == "//some/folder:one"] == ["some/folder/one.so"]


def test_what_is_called_identical_is(evidence: Evidence) -> None:
    assert [row.name for row in evidence.rows if not row.same] == []
    assert all(len(row.first) == 71 and row.first.startswith("sha256:") for row in evidence.rows)


def test_page_shows_what_differs(evidence: Evidence) -> None:
    rows = (Row("one", "G", "//x", "sha256:aa", "sha256:bb"), Row("two", "G", "//y", "sha256:cc", "sha256:cc"))
    text = page.text(Evidence(evidence.about, rows))
    assert "1 of 2 artifacts are bit-identical" in text
    assert "| one<br>`//x` | **differs** | `aa`, then `bb` |" in text
    assert "| two<br>`//y` | bit-identical | `cc` |" in text


@pytest.mark.parametrize("data", [b"", b"[]", b'{"schema": "other", "artifacts": []}', b'{"artifacts": [{"x": 1}]}'])
def test_evidence_that_is_none(data: bytes) -> None:
    with pytest.raises(UserError, match=r"evidence\.json: is no evidence of schema moet\.ledger\.v1"):
        Evidence.read(data)
