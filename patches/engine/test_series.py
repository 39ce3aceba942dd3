from pathlib import Path

import pytest

from patches.engine.errors import PatchError
from patches.engine.fake_series import make_patch, make_series
from patches.engine.series import load_series, parse_patch

ONE = make_patch("one", ("demo/x.py", b"a\n", b"b\n"))
TWO = make_patch("two", ("demo/y.py", b"a\n", b"b\n"), step="b-step")


def test_order_is_the_files(tmp_path: Path) -> None:
    folder = make_series(tmp_path, {"two.patch": TWO, "one.patch": ONE})
    series = load_series(folder)
    assert [patch.name for patch in series.patches] == ["two.patch", "one.patch"]
    assert series.patches[0].paths == ("demo/y.py",)
    assert not series.problems


def test_comments_and_empty_lines(tmp_path: Path) -> None:
    folder = make_series(tmp_path, {"one.patch": ONE, "two.patch": TWO})
    (folder / "series").write_text("# first\n\n  one.patch  # why\n\ntwo.patch\n")
    assert [patch.name for patch in load_series(folder).patches] == ["one.patch", "two.patch"]
    assert not load_series(folder).problems


def test_listed_twice_missing_and_unlisted_are_all_told(tmp_path: Path) -> None:
    folder = make_series(tmp_path, {"one.patch": ONE, "two.patch": TWO})
    (folder / "series").write_text("one.patch\ngone.patch\none.patch\n")
    series = load_series(folder)
    assert series.problems == (
        "series:3: one.patch is listed twice, first on line 1: keep one line",
        "gone.patch: listed in series, but there is no such file: add it or drop the line",
        "two.patch: in the folder, but not listed in series: list it or delete it",
    )
    assert [patch.name for patch in series.patches] == ["one.patch"]


@pytest.mark.parametrize("name", ["01-one.patch", "One.patch", "one.diff", "../one.patch", "a b.patch"])
def test_names_are_words_without_numbers(tmp_path: Path, name: str) -> None:
    folder = make_series(tmp_path, {"one.patch": ONE})
    (folder / "series").write_text(f"one.patch\n{name}\n")
    assert load_series(folder).problems[0].startswith(f"series:2: {name!r} is no patch name")


def test_no_series_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="cannot read the series file"):
        load_series(tmp_path)
    (tmp_path / "series").write_text("# nothing\n")
    assert load_series(tmp_path).problems == ("series: lists no patch: write one file name a line",)


def test_faults_of_header_and_diff_are_told_together() -> None:
    patch = parse_patch("one.patch", ONE.replace(b"Step: a-step\n", b"").replace(b"@@ -1 +1 @@", b"@@ -1 +9 @@"))
    assert len(patch.faults) == 2
    assert patch.faults[0].startswith("field Step is missing")
    assert patch.faults[1].startswith("line 10: hunk says +9")
    assert patch.header is None
    assert patch.paths == ("demo/x.py",)


def test_steps_have_one_switch(tmp_path: Path) -> None:
    one = make_patch("one", ("demo/x.py", b"a\n", b"VLLM_MOET_A\n"), switch="VLLM_MOET_A")
    two = make_patch("two", ("demo/y.py", b"a\n", b"VLLM_MOET_B\n"), switch="VLLM_MOET_B")
    folder = make_series(tmp_path, {"one.patch": one, "two.patch": two})
    assert load_series(folder).problems == (
        "step a-step: its patches name different switches: VLLM_MOET_A (one.patch), VLLM_MOET_B (two.patch): "
        "a step has one",
    )


@pytest.mark.parametrize("added", [b"nothing\n", b"VLLM_MOET_AB\n"])
def test_a_switch_that_no_added_line_reads(tmp_path: Path, added: bytes) -> None:
    one = make_patch("one", ("demo/x.py", b"VLLM_MOET_A\nx\n", b"VLLM_MOET_A\n" + added), switch="VLLM_MOET_A")
    assert load_series(make_series(tmp_path, {"one.patch": one})).problems == (
        "one.patch: the header names the switch VLLM_MOET_A, but no added line of the step reads it",
    )


def test_a_switch_may_be_read_by_another_patch_of_the_step(tmp_path: Path) -> None:
    one = make_patch("one", ("demo/x.py", b"a\n", b"os.getenv('VLLM_MOET_A')\n"), switch="VLLM_MOET_A")
    two = make_patch("two", ("demo/y.py", b"a\n", b"b\n"), switch="VLLM_MOET_A")
    assert not load_series(make_series(tmp_path, {"one.patch": one, "two.patch": two})).problems
