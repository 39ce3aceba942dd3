from pathlib import Path

import pytest

from releases.cutting.cut import reader
from releases.testing.toy import Toy
from releases.tree import bazel_label, line_data
from tools.cli.errors import UserError

LINE = "images/toy/line.bzl"


def test_reads(fresh: Toy) -> None:
    data = line_data.read(reader(fresh.root), "toy")
    assert (data.name, data.release, data.base) == ("toy", 1, "vllm 0.33.0 4ba787ec9")
    assert [(step.number, step.name, step.evidence) for step in data.steps] == [
        (1, "tiers", "//images/toy:engine_test"),
        (2, "next", "//images/toy:engine_test"),
    ]
    assert (str(data.tag()), str(data.tag(0))) == ("toy:vllm0.33.0-r1", "toy:vllm0.33.0-r0")


FAULTS = [
    ("TOY = line(", "TOY = lines(", "expected one NAME = line(...), found 0"),
    ("release = 1", "release = ONE", f"{LINE}:7: release: expected a literal number"),
    ("release = 1", "release = True", "release: expected a literal number"),
    ("    release = 1,\n", "", f"{LINE}:4: line(...) has no release = ..."),
    ('name = "toy"', 'name = "joy"', "its name is 'joy', its folder's 'toy'"),
    ('"//third_party/vllm:pin.bzl"', '"//third_party/none:pin.bzl"', "third_party/none/pin.bzl: does not exist"),
    ("base = VLLM", "base = OTHER", "base: expected the name of a pin"),
    ("number = 1", 'number = "1"', f"{LINE}:10: step's number: expected a literal number"),
    ("steps = [", "steps = STEPS + [", "steps: expected a list of step(...)"),
    ("step(\n            number = 1", "stop(\n            number = 1", "steps: expected step(...)"),
    ("TOY = line(", "TOY = line((", "cannot be read as data"),
]


@pytest.mark.parametrize(("old", "new", "says"), FAULTS, ids=[new for _, new, _ in FAULTS])
def test_what_is_no_data_is_said(fresh: Toy, old: str, new: str, says: str) -> None:
    fresh.edit(LINE, old, new)
    with pytest.raises(UserError) as caught:
        line_data.read(reader(fresh.root), "toy")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_number_changes_nothing_else(fresh: Toy) -> None:
    fresh.edit(LINE, "    release = 1,", "    title = 'é', release = 1,  # release = 1")
    text = fresh.read(LINE)
    changed = line_data.with_release(text, "toy", 10)
    assert changed == text.replace("release = 1,  #", "release = 10,  #")
    fresh.write(LINE, changed)
    assert line_data.read(reader(fresh.root), "toy").release == 10


MACRO = """
load("//a:b.bzl", "b")

def tests(name, prefix):
    native.test(name = "%s_test" % name)
    native.test(name = prefix + "whole")
    native.test(name = name)
    b(name = name + ".deep")
"""


@pytest.fixture
def labels(fresh: Toy) -> Toy:
    fresh.write("x/BUILD.bazel", 'load("//x:m.bzl", "tests")\ntests(name = "one")\nother(name = "two")\n')
    fresh.write("x/m.bzl", MACRO)
    fresh.write("a/b.bzl", 'load(":b.bzl", "b")\ndef b(name):\n    native.c(name = "made")\n')
    fresh.write("x/file.py", "")
    fresh.write("y/BUILD", 'c(name = "y")\n')
    fresh.write("z/BUILD.bazel", "c(name = \n")
    return fresh


@pytest.mark.parametrize(
    ("label", "there"),
    [
        ("//x:one", True),
        ("//x:two", True),
        ("//x:three", False),
        ("//x:one_test", True),
        ("//x:three_test", False),
        ("//x:whole", True),
        ("//x:one.whole", True),
        ("//x:one.deep", True),
        ("//x:made", True),
        ("//x:file.py", True),
        ("//x:x", False),
        ("//y", True),
        ("//y:z", False),
        ("//z:z", False),
        ("//none:x", False),
        ("x:one", False),
    ],
)
def test_labels(labels: Toy, label: str, there: bool) -> None:
    assert bazel_label.exists(reader(labels.root), label) is there


def test_the_real_line_is_read() -> None:
    root = Path("bazelw").resolve().parent
    data = line_data.read(reader(root), "dsv41")
    assert data.name == "dsv41"
    assert all(bazel_label.exists(reader(root), step.evidence) for step in data.steps)
