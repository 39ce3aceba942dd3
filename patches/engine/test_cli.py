import hashlib
import json
from pathlib import Path

import pytest

from patches.engine import cli, files, overlay
from patches.engine.errors import PatchError
from patches.engine.fake_series import make_patch, make_series
from patches.engine.fake_wheel import make_wheel
from patches.engine.judge import judge
from patches.engine.series import load_series
from patches.engine.wheel import Wheel

BASE = b"".join(b"n%d = %d\n" % (number, number) for number in range(1, 31))
FIVE = BASE.replace(b"n5 = 5\n", b"n5 = 55\n")
FIVE_AND_SIX = FIVE.replace(b"n6 = 6\n", b"n6 = 66\n")
PATCHES = {
    "five.patch": make_patch("five", ("demo/x.py", BASE, FIVE), ("demo/new/y.py", None, b"y = 1\n")),
    "six.patch": make_patch("six", ("demo/x.py", FIVE, FIVE_AND_SIX), step="b-step"),
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, {"demo/x.py": BASE, "demo/z.py": b"z = 1\n"})


def run(wheel: Path, folder: Path, out: Path, manifest: Path) -> int:
    given = {"--wheel": wheel, "--series-dir": folder, "--out": out, "--manifest": manifest}
    return cli.main([str(word) for pair in given.items() for word in pair])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_build_writes_changed_files_and_manifest(tmp_path: Path, wheel: Path) -> None:
    folder, out, manifest = make_series(tmp_path, PATCHES), tmp_path / "out", tmp_path / "overlay.json"
    assert run(wheel, folder, out, manifest) == 0
    assert content(out) == {"demo/x.py": FIVE_AND_SIX, "demo/new/y.py": b"y = 1\n"}
    data = json.loads(manifest.read_text())
    assert data["project"] == "demo"
    assert data["version"] == "1.0"
    assert data["source"] == {"file": wheel.name, "sha256": sha256(wheel.read_bytes())}
    assert data["files"] == [
        {"path": "demo/new/y.py", "before": None, "after": sha256(b"y = 1\n"), "patches": ["five.patch"]},
        {
            "path": "demo/x.py",
            "before": sha256(BASE),
            "after": sha256(FIVE_AND_SIX),
            "patches": ["five.patch", "six.patch"],
        },
    ]
    assert data["patches"][0] == {
        "name": "five.patch",
        "sha256": sha256(PATCHES["five.patch"]),
        "description": "five",
        "reason": "upstreaming",
        "step": "a-step",
        "switch": None,
        "forwarded": "no",
        "drop_when": "upstream does it",
        "last_update": "2026-11-29",
        "files": ["demo/new/y.py", "demo/x.py"],
    }
    assert [patch["name"] for patch in data["patches"]] == ["five.patch", "six.patch"]


def test_build_twice_gives_the_same_bytes(tmp_path: Path, wheel: Path) -> None:
    folder = make_series(tmp_path, PATCHES)
    for place in ("a", "b/c"):
        out = tmp_path / place
        assert run(wheel, folder, out / "tree", out / "overlay.json") == 0
    assert content(tmp_path / "a") == content(tmp_path / "b/c")


def test_a_failure_is_told_in_one_last_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = make_wheel(tmp_path, {"demo/x.py": b"new = 1\n" + BASE})
    folder = make_series(tmp_path, PATCHES)
    before = content(tmp_path)
    assert run(moved, folder, tmp_path / "out", tmp_path / "overlay.json") == 1
    assert content(tmp_path) == before
    assert not (tmp_path / "out").exists()
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(
        "patches: demo 1.0: 2 of 2 patches do not apply exactly: "
        "five.patch (would apply at an offset), six.patch (would apply at an offset); nothing was written"
    )


def test_a_filled_folder_is_left_alone(tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = make_series(tmp_path, PATCHES), tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    assert run(wheel, folder, out, tmp_path / "overlay.json") == 1
    assert content(out) == {"mine": b"x"}
    assert not (tmp_path / "overlay.json").exists()
    assert "is not an empty folder: remove it or name another" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_series(tmp_path, PATCHES)
    written: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        if written:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        files.write(path, data)

    monkeypatch.setattr("patches.engine.overlay.write", write)
    before = content(tmp_path)
    assert run(wheel, folder, tmp_path / "out", tmp_path / "overlay.json") == 1
    assert content(tmp_path) == before
    assert "cannot write the overlay (No space left on device)" in capsys.readouterr().err


def test_what_was_written_is_checked_not_believed(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(path: Path, data: bytes) -> None:
        files.write(path, data.replace(b"n30 = 30\n", b"n30 = 31\n"))

    monkeypatch.setattr("patches.engine.overlay.write", spoil)
    with Wheel(wheel) as opened:
        outcome = judge(load_series(make_series(tmp_path, PATCHES)), opened)
        with pytest.raises(PatchError, match="without the patches the written file is not the wheel's"):
            overlay.write_overlay(outcome, opened, tmp_path / "out", tmp_path / "overlay.json")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "overlay.json").exists()


def test_a_wheel_of_another_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = make_wheel(tmp_path, {"demo/x.py": BASE}, "demo-2.0")
    folder = make_series(tmp_path, PATCHES)
    assert run(other, folder, tmp_path / "out", tmp_path / "overlay.json") == 1
    assert "holds the patches of demo-1.0, but the wheel is demo-2.0: rename the folder" in capsys.readouterr().err


def test_a_patch_that_cannot_be_read_is_named(tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_series(tmp_path, PATCHES)
    (folder / "six.patch").unlink()
    (folder / "six.patch").symlink_to("nowhere")
    assert run(wheel, folder, tmp_path / "out", tmp_path / "overlay.json") == 1
    assert capsys.readouterr().err == f"patches: {folder}/six.patch: No such file or directory\n"


@pytest.mark.parametrize("missing", ["wheel", "series"])
def test_missing_input_is_one_clear_line(
    tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    folder = make_series(tmp_path, PATCHES)
    (wheel if missing == "wheel" else folder / "series").unlink()
    assert run(wheel, folder, tmp_path / "out", tmp_path / "overlay.json") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("patches: ")
