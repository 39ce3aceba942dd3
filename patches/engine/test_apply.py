import random

import pytest

from patches.engine.apply import FileFit, State, fit_file, reverse_file
from patches.engine.diff import FileDiff, parse_diff
from patches.engine.make import make_diff
from patches.engine.text import split_lines

OLD = b"".join(b"line %d\n" % number for number in range(1, 31))
NEW = OLD.replace(b"line 10\n", b"line ten\n").replace(b"line 20\n", b"line 20\nadded\n")


def diff(old: bytes | None = OLD, new: bytes = NEW) -> FileDiff:
    (file,) = parse_diff(make_diff("demo/x.py", old, new))
    return file


def fit(content: bytes | None, file: FileDiff | None = None) -> FileFit:
    return fit_file(file or diff(), content)


def test_exact_lines_apply() -> None:
    found = fit(OLD)
    assert found.state is State.CLEAN
    assert found.result == NEW
    assert [hunk.found_at for hunk in found.fits] == [7, 18]


@pytest.mark.parametrize("moved", [1, 2, 40])
def test_an_offset_down_is_not_clean(moved: int) -> None:
    found = fit(b"new\n" * moved + OLD)
    assert found.state is State.OFFSET
    assert [(hunk.stated, hunk.found_at) for hunk in found.fits] == [(7, 7 + moved), (18, 18 + moved)]
    assert found.result == b"new\n" * moved + NEW


def test_an_offset_up_is_not_clean() -> None:
    found = fit(OLD.removeprefix(b"line 1\n"))
    assert found.state is State.OFFSET
    assert [hunk.found_at for hunk in found.fits] == [6, 17]


def test_an_offset_of_one_hunk_alone_is_not_clean() -> None:
    found = fit(OLD.replace(b"line 14\n", b"line 14\nnew\n"))
    assert found.state is State.OFFSET
    assert [hunk.state for hunk in found.fits] == [State.CLEAN, State.OFFSET]


@pytest.mark.parametrize("number", [7, 8, 9, 11, 12, 13])
def test_one_context_line_that_differs_is_a_conflict(number: int) -> None:
    """Tools with fuzz would apply this."""
    found = fit(OLD.replace(b"line %d\n" % number, b"line %d \n" % number))
    assert found.state is State.CONFLICT
    assert found.result is None
    assert found.fits[0].differences == ((number, f"line {number}", f"line {number} "),)
    assert found.fits[1].state is State.CLEAN


def test_a_missing_context_line_is_a_conflict() -> None:
    assert fit(OLD.replace(b"line 8\n", b"")).state is State.CONFLICT


def test_a_conflict_shows_the_closest_place() -> None:
    moved = b"new\n" * 3 + OLD.replace(b"line 10\n", b"line X\n")
    found = fit(moved).fits[0]
    assert found.note == "closest at line 10"
    assert found.differences == ((13, "line 10", "line X"),)


def test_a_file_cut_short_is_a_conflict() -> None:
    found = fit(b"line 1\n")
    assert found.state is State.CONFLICT
    assert found.fits[1].differences[-1][2] == "(end of file)"


def test_lines_that_stand_twice_are_not_guessed_at() -> None:
    block = b"".join(b"line %d\n" % number for number in range(7, 14))
    found = fit(b"new\n" + OLD + block)
    assert found.state is State.CONFLICT
    assert found.fits[0].note == "stands at several lines, not at the stated one: 8, 32"


def test_what_is_there_already_is_upstream() -> None:
    found = fit(NEW)
    assert found.state is State.SUPERSEDED
    assert found.result == NEW
    found = fit(b"new\n" + NEW)
    assert found.state is State.SUPERSEDED
    assert [hunk.found_at for hunk in found.fits] == [8, 19]


def test_half_upstream_is_a_conflict_with_a_way_on() -> None:
    found = fit(OLD.replace(b"line 10\n", b"line ten\n"))
    assert found.state is State.CONFLICT
    assert found.note == "some hunks are already upstream, some are not: refresh the patch"
    assert [hunk.state for hunk in found.fits] == [State.SUPERSEDED, State.CLEAN]
    assert found.result == NEW


def test_hunks_that_swapped_places_do_not_apply() -> None:
    lines = split_lines(OLD)
    found = fit(b"".join(lines[15:] + lines[:15]))
    assert found.state is State.CONFLICT
    assert found.note == "hunks would apply out of order or overlap"


def test_line_ends_alone_are_named() -> None:
    found = fit(OLD.replace(b"\n", b"\r\n"))
    assert found.state is State.CONFLICT
    assert found.fits[0].note == "differs in line ends alone (CRLF against LF)"


def test_crlf_files_keep_their_ends() -> None:
    old, new = OLD.replace(b"\n", b"\r\n"), NEW.replace(b"\n", b"\r\n")
    found = fit(old, diff(old, new))
    assert (found.state, found.result) == (State.CLEAN, new)


@pytest.mark.parametrize(("cut_old", "cut_new"), [(True, False), (False, True), (True, True)])
def test_the_last_newline_is_part_of_the_file(cut_old: bool, cut_new: bool) -> None:
    old = OLD.removesuffix(b"\n") if cut_old else OLD
    new = (OLD + b"last\n").removesuffix(b"\n") if cut_new else OLD + b"last\n"
    found = fit(old, diff(old, new))
    assert (found.state, found.result) == (State.CLEAN, new)
    other = OLD if cut_old else OLD.removesuffix(b"\n")
    assert fit(other, diff(old, new)).state is not State.CLEAN


def test_a_newline_may_not_vanish_inside_a_file() -> None:
    (file,) = parse_diff(
        b"--- a/demo/x.py\n+++ b/demo/x.py\n@@ -1 +1 @@\n-line 1\n+line one\n\\ No newline at end of file\n"
    )
    found = fit(OLD, file)
    assert found.state is State.CONFLICT
    assert found.note == "a hunk drops the newline of a line that is not the last"


def test_no_such_file() -> None:
    found = fit(None)
    assert (found.state, found.note) == (State.CONFLICT, "no such file in the wheel")


def test_new_files() -> None:
    file = diff(None, NEW)
    assert (fit(None, file).state, fit(None, file).result) == (State.CLEAN, NEW)
    assert fit(NEW, file).state is State.SUPERSEDED
    assert fit(OLD, file).state is State.CONFLICT
    assert fit(OLD, file).result is None


def test_a_patch_can_be_taken_out_again() -> None:
    assert reverse_file(diff(), NEW) == OLD
    assert reverse_file(diff(), OLD) is None
    assert reverse_file(diff(), b"x\n" + NEW) is None
    assert reverse_file(diff(None, NEW), NEW) == b""


def test_what_make_diff_writes_applies_and_reverses() -> None:
    """Random edits of repetitive lines, with and without a last newline."""
    chance = random.Random(7)
    for _ in range(300):
        old = [b"%d\n" % chance.randrange(6) for _ in range(chance.randrange(1, 40))]
        new = [line for line in old if chance.random() > 0.1]
        for _ in range(chance.randrange(4)):
            new.insert(chance.randrange(len(new) + 1), b"%d\r\n" % chance.randrange(6))
        before, after = b"".join(old), b"".join(new)
        if chance.random() < 0.3:
            after = after.removesuffix(b"\n")
        if before == after:
            continue
        file = diff(before, after)
        assert (fit(before, file).state, fit(before, file).result) == (State.CLEAN, after)
        assert reverse_file(file, after) == before
        assert fit(b"front\n" + before, file).state is not State.CLEAN
