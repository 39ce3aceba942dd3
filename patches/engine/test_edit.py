from pathlib import Path

import pytest

from patches.engine import cli
from patches.engine.fake_series import make_patch, make_series
from patches.engine.fake_wheel import make_wheel

BASE = b"".join(b"n%d = %d\n" % (number, number) for number in range(1, 31))
FIVE = BASE.replace(b"n5 = 5\n", b"n5 = 55\n")
FIVE_AND_SIX = FIVE.replace(b"n6 = 6\n", b"n6 = 66\n")
PATCHES = {
    "five.patch": make_patch("five", ("demo/x.py", BASE, FIVE)),
    "six.patch": make_patch("six", ("demo/x.py", FIVE, FIVE_AND_SIX)),
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, {"demo/x.py": BASE, "demo/z.py": b"z = 1\n"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_series(tmp_path, PATCHES)


def run(wheel: Path, folder: Path, *arguments: str | Path) -> int:
    return cli.main(["--wheel", str(wheel), "--series-dir", str(folder), *map(str, arguments)])


def test_edit_shows_the_file_as_the_patch_leaves_it(tmp_path: Path, wheel: Path, folder: Path) -> None:
    assert run(wheel, folder, "edit", "five.patch", "--to", tmp_path / "e") == 0
    assert (tmp_path / "e/demo/x.py").read_bytes() == FIVE
    assert run(wheel, folder, "edit", "six.patch", "demo/z.py", "--to", tmp_path / "f") == 0
    assert (tmp_path / "f/demo/x.py").read_bytes() == FIVE_AND_SIX
    assert (tmp_path / "f/demo/z.py").read_bytes() == b"z = 1\n"


def test_refresh_of_what_was_not_edited_changes_nothing(tmp_path: Path, wheel: Path, folder: Path) -> None:
    run(wheel, folder, "edit", "six.patch", "--to", tmp_path / "e")
    assert run(wheel, folder, "refresh", "six.patch", "--from", tmp_path / "e") == 0
    assert (folder / "six.patch").read_bytes() == PATCHES["six.patch"]


def test_refresh_keeps_the_header_but_for_its_date(tmp_path: Path, wheel: Path, folder: Path) -> None:
    run(wheel, folder, "edit", "six.patch", "--to", tmp_path / "e")
    edited = FIVE_AND_SIX.replace(b"n9 = 9\n", b"n9 = 99\n")
    (tmp_path / "e/demo/x.py").write_bytes(edited)
    (tmp_path / "e/demo/added.py").write_bytes(b"a = 1\n")
    assert run(wheel, folder, "refresh", "six.patch", "--from", tmp_path / "e", "--date", "2027-01-02") == 0
    expected = make_patch("six", ("demo/added.py", None, b"a = 1\n"), ("demo/x.py", FIVE, edited))
    assert (folder / "six.patch").read_bytes() == expected.replace(b"2026-11-29", b"2027-01-02")
    assert run(wheel, folder, "check") == 0


def test_what_tools_leave_behind_does_not_become_a_patch(tmp_path: Path, wheel: Path, folder: Path) -> None:
    run(wheel, folder, "edit", "six.patch", "--to", tmp_path / "e")
    for debris in ("demo/__pycache__/x.pyc", ".cache/x", "demo/.x.py.swp"):
        (tmp_path / "e" / debris).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "e" / debris).write_bytes(b"\0")
    assert run(wheel, folder, "refresh", "six.patch", "--from", tmp_path / "e") == 0
    assert (folder / "six.patch").read_bytes() == PATCHES["six.patch"]


def test_a_new_patch_is_listed_last_with_a_header_to_fill_in(
    tmp_path: Path, wheel: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(wheel, folder, "edit", "seven.patch", "demo/z.py", "--to", tmp_path / "e")
    (tmp_path / "e/demo/z.py").write_bytes(b"z = 7\n")
    assert run(wheel, folder, "refresh", "seven.patch", "--from", tmp_path / "e", "--date", "2026-11-29") == 0
    assert (folder / "series").read_text().splitlines()[-1] == "seven.patch"
    assert run(wheel, folder, "check") == 1
    assert "seven.patch\n      field Description is empty: fill it in" in capsys.readouterr().err
    text = (folder / "seven.patch").read_text()
    text = text.replace("Description: TODO", "Description: x").replace("Drop-When: TODO", "Drop-When: x")
    text = text.replace("TODO: upstreaming | cannot be upstreamed | incompatible", "upstreaming")
    (folder / "seven.patch").write_text(text.replace("VLLM_MOET_SEVEN", "none"))
    assert run(wheel, folder, "check") == 0


def test_a_bump_by_line_numbers_alone_is_renewed_without_an_editor(tmp_path: Path, folder: Path) -> None:
    moved = make_wheel(tmp_path, {"demo/x.py": b"new = 1\n" + BASE})
    assert run(moved, folder, "check") == 1
    for name in PATCHES:
        assert run(moved, folder, "refresh", name) == 0
    assert run(moved, folder, "check") == 0


def test_a_bump_with_a_conflict_says_what_to_do_by_hand(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = BASE.replace(b"n4 = 4\n", b"n4 = 44\n")
    wheel = make_wheel(tmp_path, {"demo/x.py": other})
    assert run(wheel, folder, "refresh", "five.patch") == 1
    assert "demo/x.py conflicts: take it out with edit, then refresh --from FOLDER" in capsys.readouterr().err
    assert run(wheel, folder, "edit", "five.patch", "--to", tmp_path / "e") == 0
    assert "left out: the hunk on patch line 11, for line 2" in capsys.readouterr().out
    assert (tmp_path / "e/demo/x.py").read_bytes() == other
    (tmp_path / "e/demo/x.py").write_bytes(other.replace(b"n5 = 5\n", b"n5 = 55\n"))
    assert run(wheel, folder, "refresh", "five.patch", "--from", tmp_path / "e") == 0
    assert run(wheel, folder, "edit", "six.patch", "--to", tmp_path / "f") == 0


def test_hunks_beside_a_conflict_are_not_left_out(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = FIVE.replace(b"n20 = 20\n", b"n20 = 0\n")
    (folder / "five.patch").write_bytes(make_patch("five", ("demo/x.py", BASE, both)))
    other = b"new = 1\n" + BASE.replace(b"n4 = 4\n", b"n4 = 44\n")
    wheel = make_wheel(tmp_path, {"demo/x.py": other})
    assert run(wheel, folder, "edit", "five.patch", "--to", tmp_path / "e") == 0
    assert (tmp_path / "e/demo/x.py").read_bytes() == other.replace(b"n20 = 20\n", b"n20 = 0\n")
    assert "for line 2" in capsys.readouterr().out


def test_a_patch_that_is_all_upstream_is_to_be_dropped(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(tmp_path, {"demo/x.py": FIVE})
    assert run(wheel, folder, "refresh", "five.patch") == 1
    assert "five.patch: all of it is upstream: drop it from series and delete it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["edit", "six.patch", "demo/none.py", "--to", "e"], "demo/none.py: no such file in demo-1.0-py3-none-any.whl"),
        (["edit", "seven", "--to", "e"], "seven: a patch's name ends in .patch"),
        (["refresh", "six.patch", "--from", "nowhere"], "no such folder: take the files out first"),
        (["refresh", "seven.patch"], "seven.patch: not listed in series: for a new patch say --from FOLDER"),
    ],
)
def test_misuse_is_one_clear_line(
    tmp_path: Path,
    wheel: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert run(wheel, folder, *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_edit_does_not_overwrite_work(
    tmp_path: Path, wheel: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e/demo").mkdir(parents=True)
    (tmp_path / "e/demo/x.py").write_bytes(b"mine\n")
    assert run(wheel, folder, "edit", "six.patch", "--to", tmp_path / "e") == 0
    assert (tmp_path / "e/demo/x.py").read_bytes() == b"mine\n"
    assert "it was there already" in capsys.readouterr().out


def test_edit_needs_the_patches_before_it(
    tmp_path: Path, wheel: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "five.patch").write_bytes(make_patch("five", ("demo/x.py", b"other\n", b"thing\n")))
    assert run(wheel, folder, "edit", "six.patch", "--to", tmp_path / "e") == 1
    assert "patches before it do not apply: five.patch: renew them first" in capsys.readouterr().err
