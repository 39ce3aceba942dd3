import datetime
import subprocess
from pathlib import Path

import pytest

from patches.engine.fake_series import make_patch
from patches.engine.wheel import Wheel
from patches.tools import lint, place
from patches.tools.fake_tree import ENVS, LINES, make_tree, registered, replaced

TODAY = datetime.date(2026, 11, 29)
X = "demo/x.py"


def findings(root: Path, today: datetime.date = TODAY) -> list[str]:
    found = place.find(root)
    with Wheel(root.parent / "base/external/pypi_line_demo" / found.pin.file) as wheel:
        return [f"{one.where}: {one.text}" for one in lint.lint(found, wheel, today) if one.error]


def edit(root: Path, name: str, *pairs: tuple[str, str]) -> None:
    path = root / name
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_a_sound_series_has_no_problem_but_tells_what_is_shared(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    assert findings(root) == []
    found = place.find(root)
    with Wheel(tmp_path / "base/external/pypi_line_demo" / found.pin.file) as wheel:
        (note,) = lint.lint(found, wheel, TODAY)
    assert (note.error, note.where) == (False, X)
    assert note.text == "touched by several patches: first.patch, second.patch"


FIRST, SECOND, LINE = "patches/demo-1.0/first.patch", "patches/demo-1.0/second.patch", "images/line/line.bzl"


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (FIRST, "Reason: upstreaming\n", "", "first.patch: field Reason is missing"),
        (FIRST, "compute(6)", "compute(66)", "first.patch: hunk 1 (patch line 28, file line 2): conflict"),
        (FIRST, "+number_5 = other(5)", "+number_5 = other(5) ", "first.patch: line 33: the added line ends in blanks"),
        (FIRST, "Update: 2026-11-29", "Update: 2026-12-09", "first.patch: Last-Update: 2026-12-09 is not yet: today"),
        (FIRST, "Step: first", "Step: prime", "first.patch: Step: prime, but step 1 first of line has it"),
        (SECOND, "Switch: none", "Switch: VLLM_MOET_X", "second.patch: Switch: VLLM_MOET_X, but step 2 second of line"),
        (SECOND, "Switch: none", "Switch: VLLM_MOET_X", "second.patch: VLLM_MOET_X is not registered in environment"),
        (FIRST, "Switch: VLLM_MOET_FIRST", "Switch: none", "demo/envs.py: VLLM_MOET_FIRST is registered, but no"),
        ("patches/demo-1.0/series", "second.patch\n", "", "series: second.patch: in the folder, but not listed"),
        ("patches/demo-1.0/series", "second.patch\n", "", "step 2 second of line: names second.patch, which is not in"),
        (LINE, "['second.patch']", "[]", "step 2 second of line: has no patch and no kernel: name one, or retire the"),
        (LINE, "['second.patch']", "[]", "second.patch: no step of line has it: add it to step second in images/line/"),
        (LINE, "['second.patch']", "['second.patch', 'first.patch']", "first.patch: several steps of line have it: 1"),
        ("images/line/BUILD.bazel", "demo-1.0", "demo-2.0", "series: no line uses this series: name its overlay"),
    ],
)
def test_each_problem_is_named(tmp_path: Path, file: str, old: str, new: str, expected: str) -> None:
    root = make_tree(tmp_path)
    edit(root, file, (old, new))
    assert any(line.startswith(expected) for line in findings(root)), findings(root)


def test_a_patch_without_a_test(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    (root / "patches/demo-1.0/tests/test_second.py").unlink()
    assert findings(root) == ["second.patch: has no test: expected patches/demo-1.0/tests/test_second.py"]


def test_a_step_of_kernels_alone_is_none_to_mend(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    edit(root, LINE, ("    ],\n)", "        step(number = 3, name = 'fast', kernels = ['fp8']),\n    ],\n)"))
    assert findings(root) == []


def test_more_context_than_three_lines(tmp_path: Path) -> None:
    def hunk(start: int, count: int, *changed: int) -> bytes:
        rows = [b"@@ -%d,%d +%d,%d @@\n" % (start, count, start, count)]
        for number in range(start, start + count):
            name = b"number_%d = " % number
            old, new = name + b"compute(%d)\n" % number, name + b"other(%d)\n" % number
            rows += [b"-" + old, b"+" + new] if number in changed else [b" " + old]
        return b"".join(rows)

    head = make_patch("first", (X, LINES, replaced(LINES, 5)), step="first").split(b"@@")[0]
    series = {"first.patch": head + hunk(1, 8, 5) + hunk(17, 14, 20, 27)}
    root = make_tree(tmp_path, series, {"first": (["first.patch"], "none")})
    assert findings(root) == ["first.patch: line 11: the hunk quotes 4 unchanged lines at its edge: 3 are enough"]
    (root / FIRST).write_bytes(head + hunk(17, 15, 20, 28))
    assert findings(root) == [
        "first.patch: line 11: the hunk quotes 7 unchanged lines between two changes: split the hunk"
    ]


def test_a_diff_that_changed_since_its_date(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "patches"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    edit(root, FIRST, ("+number_5 = other(5)", "+number_5 = another(5)"))
    later = TODAY + datetime.timedelta(days=3)
    stale = "first.patch: Last-Update: 2026-11-29, but the diff changed since: write 2026-12-02"
    assert findings(root, later) == [stale]
    edit(root, FIRST, ("Last-Update: 2026-11-29", "Last-Update: 2026-12-02"))
    assert findings(root, later) == []


def test_a_registered_switch_counts_wherever_a_patch_of_the_step_registers_it(tmp_path: Path) -> None:
    envs = registered(ENVS, "VLLM_MOET_FIRST", "A")
    series = {
        "first.patch": make_patch("first", ("demo/envs.py", ENVS, envs), step="first", switch="VLLM_MOET_FIRST"),
        "more.patch": make_patch("more", (X, LINES, replaced(LINES, 5)), step="first", switch="VLLM_MOET_FIRST"),
    }
    root = make_tree(tmp_path, series, {"first": (["first.patch", "more.patch"], "VLLM_MOET_FIRST")})
    assert findings(root) == []
