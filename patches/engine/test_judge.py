from pathlib import Path

import pytest

from patches.engine import report
from patches.engine.apply import State
from patches.engine.fake_series import make_patch, make_series
from patches.engine.fake_wheel import make_wheel
from patches.engine.judge import Outcome, judge
from patches.engine.series import load_series
from patches.engine.wheel import Wheel

BASE = b"".join(b"n%d = %d\n" % (number, number) for number in range(1, 31))
FIVE = BASE.replace(b"n5 = 5\n", b"n5 = 55\n")
FIVE_AND_SIX = FIVE.replace(b"n6 = 6\n", b"n6 = 66\n")
TWENTY = BASE.replace(b"n20 = 20\n", b"n20 = 0\n")


def run(folder: Path, wheel: dict[str, bytes], patches: dict[str, bytes]) -> tuple[Outcome, str]:
    """Judge, and the report for a terminal."""
    place = make_series(folder, patches)
    with Wheel(make_wheel(folder, wheel)) as opened:
        outcome = judge(load_series(place), opened)
        return outcome, report.as_text(outcome, opened)


def states(outcome: Outcome) -> dict[str, State]:
    return {verdict.patch.name: verdict.state for verdict in outcome.verdicts}


def test_patches_of_one_file_see_each_other(tmp_path: Path) -> None:
    outcome, text = run(
        tmp_path,
        {"demo/x.py": BASE},
        {
            "five.patch": make_patch("five", ("demo/x.py", BASE, FIVE)),
            "six.patch": make_patch("six", ("demo/x.py", FIVE, FIVE_AND_SIX)),
        },
    )
    assert outcome.ok
    assert outcome.content == {"demo/x.py": FIVE_AND_SIX}
    assert outcome.before == {"demo/x.py": BASE}
    assert outcome.shared == {"demo/x.py": ("five.patch", "six.patch")}
    assert "touched by several: demo/x.py: five.patch, six.patch" in text


def test_the_wrong_order_is_found(tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path,
        {"demo/x.py": BASE},
        {
            "six.patch": make_patch("six", ("demo/x.py", FIVE, FIVE_AND_SIX)),
            "five.patch": make_patch("five", ("demo/x.py", BASE, FIVE)),
        },
    )
    assert not outcome.ok
    assert states(outcome) == {"six.patch": State.CONFLICT, "five.patch": State.BLOCKED}


def test_every_failing_patch_is_in_one_report(tmp_path: Path) -> None:
    wheel = {
        "demo/clean.py": BASE,
        "demo/moved.py": b"new = 1\n" + BASE,
        "demo/done.py": FIVE,
        "demo/other.py": BASE.replace(b"n4 = 4\n", b"n4 = 44\n"),
    }
    patches = {
        "conflict.patch": make_patch("conflict", ("demo/other.py", BASE, FIVE)),
        "offset.patch": make_patch("offset", ("demo/moved.py", BASE, FIVE)),
        "clean.patch": make_patch("clean", ("demo/clean.py", BASE, FIVE)),
        "done.patch": make_patch("done", ("demo/done.py", BASE, FIVE)),
        "blocked.patch": make_patch("blocked", ("demo/other.py", FIVE, FIVE_AND_SIX)),
        "headless.patch": b"Step: x\n\n" + make_patch("x", ("demo/clean.py", FIVE, FIVE_AND_SIX)).split(b"\n\n", 1)[1],
        "gone.patch": make_patch("gone", ("demo/gone.py", BASE, FIVE)),
    }
    outcome, text = run(tmp_path, wheel, patches)
    assert states(outcome) == {
        "conflict.patch": State.CONFLICT,
        "offset.patch": State.OFFSET,
        "clean.patch": State.CLEAN,
        "done.patch": State.SUPERSEDED,
        "blocked.patch": State.BLOCKED,
        "headless.patch": State.INVALID,
        "gone.patch": State.CONFLICT,
    }
    for line in (
        "  conflict: conflict.patch\n      demo/other.py: conflict\n",
        "        hunk 1 (patch line 11, file line 2): conflict\n"
        "          line 4: expected 'n4 = 4'\n"
        "          line 4: found    'n4 = 44'\n",
        "  would apply at an offset: offset.patch\n",
        "        hunk 1 (patch line 11, file line 2): would apply at offset +1 (line 3)\n",
        "  clean: clean.patch\n",
        "  already upstream: done.patch\n",
        "        hunk 1 (patch line 11, file line 2): its result is already there (line 2)\n",
        "  depends on a failed patch: blocked.patch (waits for conflict.patch)\n",
        "  invalid: headless.patch\n      field Description is missing",
        "      demo/gone.py: conflict: no such file in the wheel\n",
    ):
        assert line in text, text


def test_after_an_offset_the_next_patch_is_judged_on_its_result(tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path,
        {"demo/x.py": b"new = 1\n" + BASE},
        {
            "five.patch": make_patch("five", ("demo/x.py", BASE, FIVE)),
            "six.patch": make_patch("six", ("demo/x.py", FIVE, FIVE_AND_SIX)),
        },
    )
    assert states(outcome) == {"five.patch": State.OFFSET, "six.patch": State.OFFSET}


def test_a_blocked_patch_with_trouble_of_its_own_is_a_conflict(tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path,
        {"demo/x.py": FIVE_AND_SIX, "demo/y.py": b"z = 1\n"},
        {
            "first.patch": make_patch("first", ("demo/x.py", BASE, TWENTY.replace(b"n5 = 5\n", b"n5 = 0\n"))),
            "second.patch": make_patch("second", ("demo/x.py", FIVE, FIVE_AND_SIX), ("demo/y.py", BASE, FIVE)),
        },
    )
    assert states(outcome) == {"first.patch": State.CONFLICT, "second.patch": State.CONFLICT}
    assert outcome.verdicts[1].after == ("first.patch",)


def test_a_malformed_patch_blocks_those_of_its_files(tmp_path: Path) -> None:
    broken = make_patch("broken", ("demo/x.py", BASE, FIVE)).replace(b"@@ -2,7 +2,7 @@", b"@@ -2,7 +2,8 @@")
    outcome, _ = run(
        tmp_path,
        {"demo/x.py": BASE},
        {"broken.patch": broken, "twenty.patch": make_patch("twenty", ("demo/x.py", BASE, TWENTY))},
    )
    assert states(outcome) == {"broken.patch": State.INVALID, "twenty.patch": State.BLOCKED}


def test_a_result_that_is_no_python_is_a_problem(tmp_path: Path) -> None:
    outcome, _ = run(
        tmp_path,
        {"demo/x.py": BASE},
        {"five.patch": make_patch("five", ("demo/x.py", BASE, BASE.replace(b"n5 = 5", b"n5 = (")))},
    )
    assert not outcome.ok
    assert outcome.problems == ("demo/x.py:5: the patched file is no valid Python: '(' was never closed",)


@pytest.mark.parametrize("path", ["demo-1.0.dist-info/RECORD", "torch/x.py"])
def test_files_of_other_packages_are_a_problem(tmp_path: Path, path: str) -> None:
    outcome, _ = run(tmp_path, {"demo/x.py": BASE}, {"one.patch": make_patch("one", (path, None, b"x = 1\n"))})
    assert not outcome.ok
    assert outcome.problems[0].startswith(f"{path}: outside the packages of demo-1.0-py3-none-any.whl")
