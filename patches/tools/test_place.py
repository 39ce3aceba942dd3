import json
from pathlib import Path

import pytest

from images.manifest import example
from patches.engine.errors import PatchError
from patches.tools import place, steps
from patches.tools.fake_tree import make_tree


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_only_series_with_its_line_steps_and_pin(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    found = place.find(root)
    assert (found.name, found.shown, found.lines) == ("demo-1.0", "patches/demo-1.0", ("line",))
    assert (found.pin.project, found.pin.version, found.pin.repository) == ("demo", "1.0", "pypi_line_demo")
    assert [(step.number, step.name, step.switch) for step in found.steps] == [
        (1, "first", "VLLM_MOET_FIRST"),
        (2, "second", None),
    ]
    assert found.owners("second.patch") == (found.steps[1],)
    assert found.tests("first.patch") == ("patches/demo-1.0/tests/test_first.py",)
    assert place.find(root, line="line") == place.find(root, series="demo-1.0") == found


def test_misuse_names_what_there_is(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    with pytest.raises(PatchError, match="nope: no such line with patches: expected one of line"):
        place.find(root, line="nope")
    with pytest.raises(PatchError, match=r"nope: no such series in patches: expected one of demo-1\.0"):
        place.find(root, series="nope")
    (root / "patches/demo-2.0").mkdir()
    (root / "patches/demo-2.0/series").write_text("")
    with pytest.raises(PatchError, match=r"name one with --series: demo-1\.0, demo-2\.0"):
        place.find(root)
    with pytest.raises(PatchError, match=r"line line uses the series demo-1\.0, not demo-2\.0"):
        place.find(root, line="line", series="demo-2.0")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("patches/demo-1.0/BUILD.bazel", "patch_overlay(", "other(", "has no patch_overlay"),
        ("patches/demo-1.0/BUILD.bazel", "@pypi_line_demo//:file", "//x:y", "BUILD.bazel:1: wheel = '//x:y': expected"),
        ("patches/demo-1.0/BUILD.bazel", "pypi_line_demo", "pypi_line_more", "is in no lock of third_party/python"),
        ("third_party/python/line.lock.bzl", "'version': '1.0'", "'version': '1.1'", "locks demo 1.1: patch tools"),
        ("third_party/python/line.lock.bzl", "WHEELS = {", "WHEELS = {}.get(0) or {", "WHEELS is not plain data"),
        ("images/line/line.bzl", "number = 1", "number = 1 + N", "line.bzl:4: number is computed: write it out, or"),
        ("images/line/line.bzl", "number = 1", "number = '1'", "line.bzl:4: number is '1': expected int"),
        ("images/line/line.bzl", "            name = 'first',\n", "", "line.bzl:4: a step without name"),
        ("images/line/line.bzl", "steps = [", "steps = [[", "line.bzl: cannot be read as Starlark"),
    ],
)
def test_a_tree_that_cannot_be_read_is_one_line(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    root = make_tree(tmp_path)
    change(root / file, old, new)
    with pytest.raises(PatchError) as error:
        place.find(root)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_steps_of_a_manifest_stand_in_for_the_line(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    (root / "images/line/line.bzl").write_text("LINE = computed()\n")
    status, (manifest, _, _) = example.run(example.inputs(), tmp_path)
    assert status == 0
    found = place.find(root, manifests=[manifest])
    assert [(step.line, str(step), step.patches) for step in found.steps] == [
        ("dsv41", "1 tiers", ("z.patch",)),
        ("dsv41", "2 next", ("b.patch",)),
    ]


@pytest.mark.parametrize("data", [b"", b"\xff", json.dumps({"schema": "moet.manifest.v2"}).encode()])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(data)
    with pytest.raises(PatchError, match=r"manifest\.json: is no manifest of Moet's"):
        steps.of_manifest(path)
