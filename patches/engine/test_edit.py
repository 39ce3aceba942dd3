import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from patches.engine import edit
from patches.engine.errors import PatchError
from patches.engine.fake_series import make_patch, make_series
from patches.engine.fake_wheel import make_wheel
from patches.engine.judge import judge
from patches.engine.series import load_series, parse_patch, without_names
from patches.engine.wheel import Wheel

BASE = b"".join(b"n%d = %d\n" % (number, number) for number in range(1, 31))
FIVE = BASE.replace(b"n5 = 5\n", b"n5 = 55\n")
FIVE_AND_SIX = FIVE.replace(b"n6 = 6\n", b"n6 = 66\n")
PATCHES = {
    "five.patch": make_patch("five", ("demo/x.py", BASE, FIVE)),
    "six.patch": make_patch("six", ("demo/x.py", FIVE, FIVE_AND_SIX)),
}


TODAY = datetime.date(2027, 1, 2)
FILLED = make_patch("seven").decode()


@pytest.fixture
def wheel(tmp_path: Path) -> Iterator[Wheel]:
    with Wheel(make_wheel(tmp_path, {"demo/x.py": BASE, "demo/z.py": b"z = 1\n"})) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_series(tmp_path, PATCHES)


def other(folder: Path, content: bytes) -> Wheel:
    """The wheel in another state."""
    return Wheel(make_wheel(folder, {"demo/x.py": content, "demo/z.py": b"z = 1\n"}))


def sound(wheel: Wheel, folder: Path) -> bool:
    return judge(load_series(folder), wheel).ok


def test_take_out_shows_the_file_as_the_patch_leaves_it(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.take_out(wheel, folder, "five.patch", [], tmp_path / "e")
    assert (tmp_path / "e/demo/x.py").read_bytes() == FIVE
    edit.take_out(wheel, folder, "six.patch", ["demo/z.py"], tmp_path / "f")
    assert (tmp_path / "f/demo/x.py").read_bytes() == FIVE_AND_SIX
    assert (tmp_path / "f/demo/z.py").read_bytes() == b"z = 1\n"
    assert (tmp_path / "f/HEADER").read_bytes() == make_patch("six").rstrip(b"\n") + b"\n"


def test_refresh_of_what_was_not_edited_changes_nothing(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.take_out(wheel, folder, "six.patch", [], tmp_path / "e")
    assert edit.read_back(wheel, folder, "six.patch", tmp_path / "e", TODAY) == [f"{folder}/six.patch: unchanged"]
    assert (folder / "six.patch").read_bytes() == PATCHES["six.patch"]


def test_refresh_keeps_the_header_but_for_its_date(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.take_out(wheel, folder, "six.patch", [], tmp_path / "e")
    (tmp_path / "e/HEADER").unlink()
    edited = FIVE_AND_SIX.replace(b"n9 = 9\n", b"n9 = 99\n")
    (tmp_path / "e/demo/x.py").write_bytes(edited)
    (tmp_path / "e/demo/added.py").write_bytes(b"a = 1\n")
    edit.read_back(wheel, folder, "six.patch", tmp_path / "e", TODAY)
    expected = make_patch("six", ("demo/added.py", None, b"a = 1\n"), ("demo/x.py", FIVE, edited))
    assert (folder / "six.patch").read_bytes() == expected.replace(b"2026-11-29", b"2027-01-02")
    assert sound(wheel, folder)


def test_an_edited_header_counts_and_its_faults_are_told(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.take_out(wheel, folder, "six.patch", [], tmp_path / "e")
    header = tmp_path / "e/HEADER"
    header.write_text(header.read_text().replace("Reason: upstreaming", "Reason: whim"))
    told = edit.read_back(wheel, folder, "six.patch", tmp_path / "e", TODAY)
    assert told[0] == f"{folder}/six.patch: renewed"
    assert told[1].startswith("  header: Reason: 'whim' is not one of")
    changed = PATCHES["six.patch"].replace(b"upstreaming", b"whim").replace(b"2026-11-29", b"2027-01-02")
    assert (folder / "six.patch").read_bytes() == changed


def test_what_tools_leave_behind_does_not_become_a_patch(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.take_out(wheel, folder, "six.patch", [], tmp_path / "e")
    for debris in ("demo/__pycache__/x.pyc", ".cache/x", "demo/.x.py.swp"):
        (tmp_path / "e" / debris).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "e" / debris).write_bytes(b"\0")
    edit.read_back(wheel, folder, "six.patch", tmp_path / "e", TODAY)
    assert (folder / "six.patch").read_bytes() == PATCHES["six.patch"]


def test_a_new_patch_is_listed_last(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.start(wheel, folder, "seven.patch", FILLED, ["demo/z.py"], tmp_path / "e")
    (tmp_path / "e/demo/z.py").write_bytes(b"z = 7\n")
    told = edit.read_back(wheel, folder, "seven.patch", tmp_path / "e", TODAY)
    assert told == [f"{folder}/seven.patch: made and listed last in series"]
    assert (folder / "series").read_text().splitlines()[-1] == "seven.patch"
    assert sound(wheel, folder)
    again = edit.read_back(wheel, folder, "seven.patch", tmp_path / "e", TODAY)
    assert again == [f"{folder}/seven.patch: unchanged"]


def test_stopped_before_it_was_listed_a_repeat_lists_it(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    edit.start(wheel, folder, "seven.patch", FILLED, ["demo/z.py"], tmp_path / "e")
    (tmp_path / "e/demo/z.py").write_bytes(b"z = 7\n")
    before = (folder / "series").read_bytes()
    edit.read_back(wheel, folder, "seven.patch", tmp_path / "e", TODAY)
    (folder / "series").write_bytes(before)
    edit.read_back(wheel, folder, "seven.patch", tmp_path / "e", TODAY)
    assert sound(wheel, folder)


def test_a_patch_that_was_left_out_comes_back_to_its_place(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    listing = folder / "series"
    whole = listing.read_bytes()
    listing.write_bytes(without_names(whole, {"five.patch": "conflict on 1.0"}))
    assert b"# left out: five.patch (conflict on 1.0)\n" in listing.read_bytes()
    like = parse_patch("five.patch", (folder / "five.patch").read_bytes())
    (folder / "five.patch").unlink()
    edit.start_like(wheel, folder, "five.patch", like, make_patch("five").decode(), tmp_path / "e")
    assert (tmp_path / "e/demo/x.py").read_bytes() == FIVE
    told = edit.read_back(wheel, folder, "five.patch", tmp_path / "e", TODAY)
    assert told == [f"{folder}/five.patch: made and listed in series"]
    assert listing.read_bytes() == whole
    assert sound(wheel, folder)


def test_like_a_patch_of_another_version_says_what_is_left_to_do(tmp_path: Path, folder: Path) -> None:
    both = FIVE.replace(b"n20 = 20\n", b"n20 = 0\n")
    like = parse_patch("new.patch", make_patch("new", ("demo/x.py", BASE, both), ("demo/gone.py", BASE, FIVE)))
    (folder / "series").write_text("# none yet\n")
    wheel = other(tmp_path, BASE.replace(b"n4 = 4\n", b"n4 = 44\n"))
    told = edit.start_like(wheel, folder, "new.patch", like, "Step: x\n", tmp_path / "e")
    assert told[1:] == [
        f"wrote {tmp_path}/e/demo/x.py",
        "  left out: the hunk on patch line 11, for line 2",
        "left out demo/gone.py: no such file in demo-1.0-py3-none-any.whl",
    ]
    assert b"n20 = 0\n" in (tmp_path / "e/demo/x.py").read_bytes()


def test_a_bump_by_line_numbers_alone_is_renewed_without_an_editor(tmp_path: Path, folder: Path) -> None:
    moved = other(tmp_path, b"new = 1\n" + BASE)
    assert not sound(moved, folder)
    for name in PATCHES:
        edit.rebase(moved, folder, name, TODAY)
    assert sound(moved, folder)


def test_a_bump_with_a_conflict_says_what_to_do_by_hand(tmp_path: Path, folder: Path) -> None:
    changed = BASE.replace(b"n4 = 4\n", b"n4 = 44\n")
    wheel = other(tmp_path, changed)
    with pytest.raises(PatchError, match=r"demo/x\.py conflicts: take it out with --edit FOLDER"):
        edit.rebase(wheel, folder, "five.patch", TODAY)
    told = edit.take_out(wheel, folder, "five.patch", [], tmp_path / "e")
    assert "  left out: the hunk on patch line 11, for line 2" in told
    assert (tmp_path / "e/demo/x.py").read_bytes() == changed
    (tmp_path / "e/demo/x.py").write_bytes(changed.replace(b"n5 = 5\n", b"n5 = 55\n"))
    edit.read_back(wheel, folder, "five.patch", tmp_path / "e", TODAY)
    edit.take_out(wheel, folder, "six.patch", [], tmp_path / "f")


def test_hunks_beside_a_conflict_are_not_left_out(tmp_path: Path, folder: Path) -> None:
    both = FIVE.replace(b"n20 = 20\n", b"n20 = 0\n")
    (folder / "five.patch").write_bytes(make_patch("five", ("demo/x.py", BASE, both)))
    changed = b"new = 1\n" + BASE.replace(b"n4 = 4\n", b"n4 = 44\n")
    told = edit.take_out(other(tmp_path, changed), folder, "five.patch", [], tmp_path / "e")
    assert (tmp_path / "e/demo/x.py").read_bytes() == changed.replace(b"n20 = 20\n", b"n20 = 0\n")
    assert "for line 2" in told[-1]


def test_a_patch_that_is_all_upstream_is_to_be_dropped(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(PatchError, match=r"five\.patch: all of it is upstream: drop it from series and delete it"):
        edit.rebase(other(tmp_path, FIVE), folder, "five.patch", TODAY)


def test_misuse_is_one_clear_line(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    work = tmp_path / "e"
    with pytest.raises(PatchError, match=r"demo/zz\.py: no such file in demo.* \(did you mean demo/z\.py\?\)"):
        edit.start(wheel, folder, "seven.patch", FILLED, ["demo/zz.py"], work)
    with pytest.raises(PatchError, match="'seven' is no patch name"):
        edit.start(wheel, folder, "seven", FILLED, [], work)
    with pytest.raises(PatchError, match=r"six\.patch: listed in series already: moet patch refresh six\.patch --edit"):
        edit.start(wheel, folder, "six.patch", FILLED, [], work)
    with pytest.raises(PatchError, match=r"seven\.patch: not listed in series: moet patch new seven begins it"):
        edit.take_out(wheel, folder, "seven.patch", [], work)
    with pytest.raises(PatchError, match="no such folder: take the files out first"):
        edit.read_back(wheel, folder, "six.patch", work, TODAY)
    with pytest.raises(PatchError, match=r"seven\.patch: not listed in series: for a new patch say --from FOLDER"):
        edit.rebase(wheel, folder, "seven.patch", TODAY)
    assert not work.exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"demo/z.py": b"z = 7\n"}, "HEADER: a new patch needs its header there"),
        ({"HEADER": b"Step: x\n--- a/x\n", "demo/z.py": b"z = 7\n"}, "HEADER: holds a diff"),
        ({"HEADER": b"Step: x\n", "demo/z.py": b"z = 1\n"}, "nothing differs from demo 1.0"),
        ({"HEADER": b"Step: x\n", "demo/z.py": b"\0"}, "holds a NUL byte"),
        ({"HEADER": b"Step: x\n", "demo/\u00e4.py": b"z = 1\n"}, "a path in a patch must be plain ASCII"),
        ({"HEADER": b"Step: x\n", "other/z.py": b"z = 1\n"}, "outside the packages"),
    ],
)
def test_what_cannot_be_a_patch_is_refused_and_nothing_written(
    tmp_path: Path, wheel: Wheel, folder: Path, files: dict[str, bytes], message: str
) -> None:
    for path, data in files.items():
        (tmp_path / "e" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "e" / path).write_bytes(data)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(PatchError, match=message):
        edit.read_back(wheel, folder, "seven.patch", tmp_path / "e", TODAY)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_work_is_not_overwritten(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    (tmp_path / "e/demo").mkdir(parents=True)
    (tmp_path / "e/demo/x.py").write_bytes(b"mine\n")
    told = edit.take_out(wheel, folder, "six.patch", [], tmp_path / "e")
    assert (tmp_path / "e/demo/x.py").read_bytes() == b"mine\n"
    assert f"kept {tmp_path}/e/demo/x.py: it was there already" in told


def test_a_patch_needs_those_before_it(tmp_path: Path, wheel: Wheel, folder: Path) -> None:
    (folder / "five.patch").write_bytes(make_patch("five", ("demo/x.py", b"other\n", b"thing\n")))
    with pytest.raises(PatchError, match=r"patches before it do not apply: five\.patch: renew them first"):
        edit.take_out(wheel, folder, "six.patch", [], tmp_path / "e")
