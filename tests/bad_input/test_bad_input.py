"""What a person reads when an input is wrong: one line with the thing, what was expected, what to do.

A copy of the tree is built for real after each mistake, with a package index of its own on loopback.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.oci import testing
from tests import elsewhere
from tests.bad_input import index

ROOT = Path("bazelw").resolve().parent
LOCK = "third_party/python/dsv41.lock.bzl"
DEBS = "third_party/debian/bookworm.lock.bzl"
LINE = "images/dsv41/line.bzl"
SERIES = "patches/vllm-0.33.0/series"
PATCH = "patches/vllm-0.33.0/native-next-n.patch"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[elsewhere.Elsewhere]:
    """A copy of the tree whose pip knows one project, tqdm, at version 1.0 alone."""
    offered = tmp_path_factory.mktemp("index")
    (offered / "tqdm").mkdir()
    testing.wheel(offered / "tqdm", "tqdm", {"tqdm.py": b""})
    with index.serve(offered) as address, elsewhere.elsewhere(ROOT, network=True) as made:
        made.env |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": address}
        yield made


@pytest.fixture
def edit(tree: elsewhere.Elsewhere) -> Iterator[Callable[[str, str, str], None]]:
    """Replaces a regular expression's one match in a file of the tree, until the test ends."""
    saved: dict[Path, bytes] = {}

    def replace(name: str, pattern: str, replacement: str) -> None:
        path = tree.folder / name
        saved.setdefault(path, path.read_bytes())
        text, count = re.subn(pattern, replacement, path.read_text(), flags=re.DOTALL)
        assert count == 1, (name, pattern, count)
        path.write_text(text)

    yield replace
    for path, data in saved.items():
        path.write_bytes(data)


def failure(tree: elsewhere.Elsewhere, target: str) -> str:
    """Builds what must not build; returns what Bazel said."""
    with pytest.raises(elsewhere.BuildError) as error:
        tree.build(target)
    return str(error.value)


def pinned(project: str, field: str, value: str) -> tuple[str, str]:
    """Returns the expression and replacement that give a field of a locked package another value."""
    return rf'(    "{re.escape(project)}": {{(?:(?!\n    }}).)*?"{field}": )"[^"]*"', rf'\1"{value}"'


def test_wheel_vanished(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LOCK, *pinned("tqdm", "sha256", "1" * 64))
    said = failure(tree, "@pypi_dsv41_tqdm//:file")
    assert re.search(
        r"tqdm-[\d.]+-py3-none-any\.whl: the index no longer offers tqdm [\d.]+; it offers 1\.0\. "
        r"To lock what is offered now: bazel run //third_party/python:lock -- dsv41",
        said,
    )


def test_wheel_with_another_hash(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LOCK, *pinned("tqdm", "sha256", "2" * 64))
    edit(LOCK, *pinned("tqdm", "file", "tqdm-1.0-py3-none-any.whl"))
    said = failure(tree, "@pypi_dsv41_tqdm//:file")
    assert f"tqdm-1.0-py3-none-any.whl: could not be fetched with the locked SHA-256 {'2' * 64}" in said
    assert "but wanted " + "2" * 64 in said


def test_deb_vanished(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(DEBS, *pinned("netbase", "version", "0.0-gone"))
    edit(DEBS, *pinned("netbase", "sha256", "3" * 64))
    said = failure(tree, "@deb_netbase//:deb")
    assert re.search(
        r"netbase=0\.0-gone is locked, but apt cannot fetch it .*; apt offers .*bazel run //third_party/debian:lock",
        said,
    )


def test_deb_with_another_hash(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(DEBS, *pinned("netbase", "sha256", "4" * 64))
    said = failure(tree, "@deb_netbase//:deb")
    assert re.search(rf"netbase=[\d.]+: apt fetched a file with SHA-256 [0-9a-f]{{64}}, but {'4' * 64} is locked", said)


def test_step_number_used_twice(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LINE, r"number = 3", "number = 2")
    said = failure(tree, "//images/dsv41:manifest")
    assert re.search(r"image manifest: .*step.* 2\b.*", said)


def test_patch_without_a_step(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LINE, r"(name = \"native-next-n\",\s+patches = )\[[^]]*\]", r"\1[]")
    assert re.search(r"image manifest: .*native-next-n\.patch", failure(tree, "//images/dsv41:manifest"))


def test_step_with_kernels_that_are_no_family(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LINE, r"number = 3,", 'number = 3, kernels = ["no_such_gemm"],')
    said = failure(tree, "//images/dsv41:manifest")
    assert "step moe-row-alignment names the kernels no_such_gemm; expected one of kernels/families.bzl: " in said


def test_tag_that_oci_forbids(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LINE, r'    name = "dsv41",', '    name = "DS v41",')
    assert re.search(r"image manifest: .*DS v41:vllm0\.33\.0-r\d+", failure(tree, "//images/dsv41:manifest"))


def test_label_that_oci_forbids(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LINE, r'title = "[^"]*"', r'title = "two\\nlines"')
    said = failure(tree, "//images/dsv41:manifest")
    assert re.search(r"image manifest: label org\.opencontainers\.image\.title", said)


def test_patch_that_no_longer_applies(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(PATCH, r"\n logger = init_logger\(__name__\)\n", "\n logger = another_logger(__name__)\n")
    said = failure(tree, "//patches/vllm-0.33.0:overlay")
    assert "native-next-n.patch" in said
    assert "conflict" in said
    assert "reasoning-effort-tiers.patch" in said


def test_patch_listed_twice(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(SERIES, r"(native-next-n\.patch\n)", r"\1\1")
    assert re.search(r"series.*native-next-n\.patch.*twice", failure(tree, "//patches/vllm-0.33.0:overlay"))


def test_patch_unlisted(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(SERIES, r"native-next-n\.patch\n", "")
    said = failure(tree, "//patches/vllm-0.33.0:overlay")
    assert re.search(r"native-next-n\.patch.*(not listed|unlisted|series)", said)


def test_patch_missing(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(SERIES, r"native-next-n\.patch\n", "native-next-n.patch\nnowhere.patch\n")
    assert re.search(r"nowhere\.patch", failure(tree, "//patches/vllm-0.33.0:overlay"))


def test_wheel_in_no_layer_group(tree: elsewhere.Elsewhere, edit: Callable[[str, str, str], None]) -> None:
    edit(LINE, r'layer_group\("torch", \["torch"\]\)', 'layer_group("torch", ["torch", "no-such-wheel"])')
    said = failure(tree, "//images/dsv41:torch")
    assert "layer torch names no-such-wheel, which the closure dsv41 does not have" in said
