import datetime
from pathlib import Path

import pytest

from patches.engine.apply import State
from patches.engine.errors import PatchError
from patches.engine.fake_series import make_patch
from patches.engine.fake_wheel import make_wheel
from patches.engine.judge import judge
from patches.engine.series import Series, parse_patch
from patches.engine.wheel import Wheel
from patches.tools.diagnosis import Diagnosis, PatchFinding, Verdict
from patches.tools.doctor import diagnose
from patches.tools.fake_tree import ENVS, FILES, LINES, patches, registered, replaced

TODAY = datetime.date(2027, 1, 2)
X = "demo/x.py"


def run(
    folder: Path, new: dict[str, bytes], series: dict[str, bytes] | None = None, old: dict[str, bytes] | None = None
) -> Diagnosis:
    """The series, for demo 1.0 with the files `old`, held against demo 2.0 with the files `new`."""
    series = patches() if series is None else series
    parsed = Series(tuple(parse_patch(name, data) for name, data in series.items()), ())
    with Wheel(make_wheel(folder, FILES if old is None else old)) as pinned, Wheel(
        make_wheel(folder, new, "demo-2.0")
    ) as other:
        found = diagnose(parsed, series, pinned, other, TODAY)
        renewed = [parse_patch(one.patch.name, one.rebased) for one in found.patches if one.rebased is not None]
        assert all(verdict.state is State.CLEAN for verdict in judge(Series(tuple(renewed), ()), other).verdicts)
        return found


def one(
    folder: Path, new: dict[str, bytes], *diffs: tuple[str, bytes | None, bytes], switch: str = "none"
) -> PatchFinding:
    """One patch of these diffs, against demo 1.0 of the usual files and demo 2.0 of those and `new`."""
    found = run(folder, {**FILES, **new}, {"a.patch": make_patch("a", *diffs, switch=switch)})
    (patch,) = found.patches
    return patch


def verdicts(found: Diagnosis) -> list[tuple[Verdict, Verdict]]:
    return [(patch.verdict, patch.own) for patch in found.patches]


def test_unchanged_upstream_is_clean(tmp_path: Path) -> None:
    found = run(tmp_path, FILES)
    assert verdicts(found) == [(Verdict.CLEAN, Verdict.CLEAN)] * 2
    assert [patch.rebased for patch in found.patches] == list(patches().values())
    assert not found.needs_work
    assert found.shared == {X: (("first.patch", "first"), ("second.patch", "second"))}


def test_moved_lines_are_an_offset_and_need_no_person(tmp_path: Path) -> None:
    found = run(tmp_path, {**FILES, X: b"new = 1\n" + LINES})
    assert verdicts(found) == [(Verdict.OFFSET, Verdict.OFFSET)] * 2
    assert not found.needs_work
    assert found.patches[0].files[1].hunks[0].offset == 1
    renewed = found.patches[0].rebased or b""
    assert b"Last-Update: 2027-01-02" in renewed
    assert b"@@ -3,7 +3,7 @@" in renewed


def test_a_conflict_shows_what_upstream_did_there(tmp_path: Path) -> None:
    patch = one(tmp_path, {X: replaced(LINES, 5, by="upstream")}, (X, LINES, replaced(LINES, 5)))
    assert patch.verdict is Verdict.CONFLICT
    (hunk,) = patch.files[0].hunks
    assert hunk.note == ""
    assert hunk.change == (
        "@@ -2,7 +2,7 @@",
        " number_2 = compute(2)",
        " number_3 = compute(3)",
        " number_4 = compute(4)",
        "-number_5 = compute(5)",
        "+number_5 = upstream(5)",
        " number_6 = compute(6)",
        " number_7 = compute(7)",
        " number_8 = compute(8)",
    )
    assert patch.rebased is None


def test_a_conflict_with_lines_around_the_change_says_so(tmp_path: Path) -> None:
    patch = one(tmp_path, {X: replaced(LINES, 4, by="upstream")}, (X, LINES, replaced(LINES, 5)))
    assert patch.files[0].hunks[0].note == "only lines around the change differ"
    assert "+number_4 = upstream(4)" in patch.files[0].hunks[0].change


def test_upstream_lines_are_found_by_their_own_numbers_below_other_patches(tmp_path: Path) -> None:
    longer = b"ours = 1\n" * 9 + LINES
    series = {
        "a.patch": make_patch("a", (X, LINES, longer)),
        "b.patch": make_patch("b", (X, longer, replaced(longer, 30)), step="b"),
    }
    found = run(tmp_path, {**FILES, X: replaced(LINES, 30, by="upstream")}, series)
    assert verdicts(found) == [(Verdict.CLEAN, Verdict.CLEAN), (Verdict.CONFLICT, Verdict.CONFLICT)]
    assert found.patches[1].files[0].hunks[0].change[0] == "@@ -27,7 +27,7 @@"


def test_a_patch_that_waits_is_judged_on_its_own(tmp_path: Path) -> None:
    found = run(tmp_path, {**FILES, X: replaced(LINES, 5, by="upstream")})
    assert verdicts(found) == [(Verdict.CONFLICT, Verdict.CONFLICT), (Verdict.WAITS, Verdict.CLEAN)]
    assert found.patches[1].waits_for == ("first.patch",)
    assert found.patches[1].rebased == patches()["second.patch"]


def test_lines_of_a_failed_patch_are_no_offset_of_those_after_it(tmp_path: Path) -> None:
    longer = LINES.replace(b"number_5 = compute(5)\n", b"ours = 1\n" * 9)
    series = {
        "a.patch": make_patch("a", (X, LINES, longer)),
        "b.patch": make_patch("b", (X, longer, replaced(longer, 30)), step="b"),
    }
    found = run(tmp_path, {**FILES, X: replaced(LINES, 5, by="upstream")}, series)
    assert verdicts(found)[1] == (Verdict.WAITS, Verdict.CLEAN)
    assert b"@@ -27,7 +27,7 @@" in (found.patches[1].rebased or b"")


def test_a_patch_that_quotes_lines_of_a_failed_one_waits_for_it(tmp_path: Path) -> None:
    both = replaced(LINES, 5)
    series = {
        "a.patch": make_patch("a", (X, LINES, both)),
        "b.patch": make_patch("b", (X, both, replaced(both, 6)), step="b"),
        "c.patch": make_patch("c", (X, replaced(both, 6), replaced(both, 6, 30)), step="c"),
    }
    found = run(tmp_path, {**FILES, X: replaced(LINES, 2, by="upstream")}, series)
    assert verdicts(found) == [
        (Verdict.CONFLICT, Verdict.CONFLICT),
        (Verdict.WAITS, Verdict.CONFLICT),
        (Verdict.WAITS, Verdict.CLEAN),
    ]
    assert found.patches[2].waits_for == ("a.patch", "b.patch")


def test_the_same_change_at_the_same_place_is_upstream(tmp_path: Path) -> None:
    patch = one(tmp_path, {X: b"new = 1\n" + replaced(LINES, 5)}, (X, LINES, replaced(LINES, 5)))
    assert patch.verdict is Verdict.UPSTREAM
    found = patch.files[0].hunks[0].upstream
    assert found is not None
    assert (found.path, found.line) == (X, 3)


def test_the_same_change_under_other_lines_is_upstream(tmp_path: Path) -> None:
    new = replaced(replaced(LINES, 5), 4, 6, by="upstream")
    patch = one(tmp_path, {X: new}, (X, LINES, replaced(LINES, 5)))
    assert patch.verdict is Verdict.UPSTREAM
    assert patch.files[0].hunks[0].note == "under other lines"


def test_the_same_lines_indented_in_another_file_are_upstream(tmp_path: Path) -> None:
    added = LINES.replace(b"number_5 = compute(5)\n", b"number_5 = compute(5)\nnative_decode = allowed(next_n)\n")
    new = {X: replaced(LINES, 4, 6, by="upstream"), "demo/z.py": b"def f():\n    native_decode = allowed(next_n)\n"}
    patch = one(tmp_path, new, (X, LINES, added))
    assert patch.verdict is Verdict.UPSTREAM
    found = patch.files[0].hunks[0].upstream
    assert found is not None
    assert (found.path, found.line) == ("demo/z.py", 2)


def test_an_entry_between_equal_lines_is_upstream_however_the_diff_reads(tmp_path: Path) -> None:
    def entries(*names: bytes) -> bytes:
        return b"entries = {\n" + b"".join(b'    "%s": compute(\n        1\n    ),\n' % name for name in names) + b"}\n"

    old, wanted = entries(b"alpha", b"omega"), entries(b"alpha", b"wanted_entry", b"omega")
    new = entries(b"alpha", b"other", b"omega", b"wanted_entry", b"last")
    found = run(tmp_path, {X: new}, {"a.patch": make_patch("a", (X, old, wanted))}, {X: old})
    assert found.patches[0].verdict is Verdict.UPSTREAM


@pytest.mark.parametrize("line", [b"pass\n", b"import demo.envs as envs\n"])
def test_lines_that_tell_nothing_are_not_upstream_elsewhere(tmp_path: Path, line: bytes) -> None:
    added = LINES.replace(b"number_5 = compute(5)\n", b"number_5 = compute(5)\n" + line)
    patch = one(tmp_path, {X: replaced(LINES, 4, 6, by="upstream"), "demo/z.txt.py": line}, (X, LINES, added))
    assert patch.verdict is Verdict.CONFLICT


def test_lines_that_were_there_all_along_are_not_upstream(tmp_path: Path) -> None:
    added = LINES.replace(b"number_5 = compute(5)\n", b"number_5 = compute(5)\nnumber_30 = compute(30)\n")
    patch = one(tmp_path, {X: replaced(LINES, 4, 6, by="upstream")}, (X, LINES, added))
    assert patch.verdict is Verdict.CONFLICT


def test_a_replacement_is_not_upstream_while_the_old_line_stands(tmp_path: Path) -> None:
    new = replaced(LINES, 4, 6, by="upstream") + b"number_5 = other(5)\n"
    assert one(tmp_path, {X: new}, (X, LINES, replaced(LINES, 5))).verdict is Verdict.CONFLICT


def test_what_is_left_of_a_patch_that_is_partly_upstream_is_renewed(tmp_path: Path) -> None:
    y = FILES["demo/y.py"]
    patch = one(tmp_path, {X: replaced(LINES, 5)}, (X, LINES, replaced(LINES, 5)), ("demo/y.py", y, replaced(y, 20)))
    assert patch.verdict is Verdict.PARTLY
    assert patch.rebased is not None
    assert [diff.path for diff in parse_patch("a.patch", patch.rebased).diffs] == ["demo/y.py"]


def test_hunks_of_one_file_partly_upstream_under_other_lines(tmp_path: Path) -> None:
    new = replaced(replaced(LINES, 5), 4, 6, by="upstream")
    patch = one(tmp_path, {X: new}, (X, LINES, replaced(LINES, 5, 30)))
    assert patch.verdict is Verdict.PARTLY
    assert patch.rebased is not None
    (diff,) = parse_patch("a.patch", patch.rebased).diffs
    assert [hunk.start for hunk in diff.hunks] == [27]


def test_a_switch_alone_does_not_keep_a_patch_alive(tmp_path: Path) -> None:
    envs = registered(ENVS, "VLLM_MOET_A", "B")
    patch = one(
        tmp_path,
        {X: replaced(LINES, 5)},
        ("demo/envs.py", ENVS, envs),
        (X, LINES, replaced(LINES, 5)),
        switch="VLLM_MOET_A",
    )
    assert patch.verdict is Verdict.UPSTREAM
    assert patch.note == "what is left only registers VLLM_MOET_A: drop the patch with its step"
    assert patch.rebased is None


def test_a_file_that_moved_is_followed(tmp_path: Path) -> None:
    files = {path: data for path, data in FILES.items() if path != X} | {"demo/sub/x.py": replaced(LINES, 40)}
    found = run(tmp_path, files, {"a.patch": make_patch("a", (X, LINES, replaced(LINES, 5)))})
    (patch,) = found.patches
    assert patch.verdict is Verdict.GONE
    ((candidate, there),) = patch.files[0].candidates
    assert (candidate.path, candidate.same_name, there) == ("demo/sub/x.py", True, "1 of 1 hunks have a place there")
    assert 0.9 < candidate.share < 1


def test_a_file_that_was_renamed_is_found_by_its_lines(tmp_path: Path) -> None:
    files = {path: data for path, data in FILES.items() if path != X} | {"demo/other.py": b"a = 1\n" + LINES}
    found = run(tmp_path, files, {"a.patch": make_patch("a", (X, LINES, replaced(LINES, 5)))})
    assert found.patches[0].files[0].candidates[0][0].path == "demo/other.py"


def test_a_file_that_is_nowhere(tmp_path: Path) -> None:
    files = {path: data for path, data in FILES.items() if path != X} | {"demo/sub/x.py": b"unlike = 1\n"}
    found = run(tmp_path, files, {"a.patch": make_patch("a", (X, LINES, replaced(LINES, 5)))})
    assert found.patches[0].verdict is Verdict.GONE
    assert found.patches[0].files[0].note == "not in 2.0"
    assert found.patches[0].files[0].candidates == ()


def test_a_whole_package_that_is_gone_is_no_error(tmp_path: Path) -> None:
    old = {**FILES, "extra/x.py": LINES}
    found = run(tmp_path, FILES, {"a.patch": make_patch("a", ("extra/x.py", LINES, replaced(LINES, 5)))}, old)
    assert found.patches[0].verdict is Verdict.GONE


def test_a_file_to_be_created_that_exists_by_now(tmp_path: Path) -> None:
    new = ("demo/new.py", None, b"new_value = 1\n")
    assert one(tmp_path, {}, new).verdict is Verdict.CLEAN
    assert one(tmp_path, {"demo/new.py": b"new_value = 1\n"}, new).verdict is Verdict.UPSTREAM
    patch = one(tmp_path, {"demo/new.py": b"new_value = 2\n"}, new)
    assert patch.verdict is Verdict.CONFLICT
    assert patch.files[0].note == "to be created, but it exists already with other content"


def test_a_result_that_is_no_python_is_a_problem(tmp_path: Path) -> None:
    broken = LINES + b"(\n"
    found = run(tmp_path, {**FILES, X: broken}, {"a.patch": make_patch("a", (X, LINES, replaced(LINES, 5)))})
    assert found.needs_work
    assert found.problems[0].startswith("demo/x.py:41: the patched file is no valid Python")


def test_a_series_that_is_not_sound_at_home_is_refused(tmp_path: Path) -> None:
    series = {"a.patch": make_patch("a", (X, b"no\n", b"yes\n"))}
    with pytest.raises(PatchError, match=r"not sound on its own demo 1\.0 \(a\.patch\): moet patch lint says more"):
        run(tmp_path, FILES, series)
