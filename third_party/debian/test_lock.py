"""Locking, by the real apt on a small archive: suites, frozen sources, what is left out, and --check."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from third_party.debian import apt, lock, lockfile
from third_party.debian.testing import Archive
from third_party.locking import difference

WANTED = """
suite = "bookworm"
architecture = "amd64"
[[want]]
purpose = "all"
packages = ["gcc", "python"]
[[frozen]]
sources = ["gcc-12"]
reason = "compiler"
[[absent]]
packages = ["perl"]
reason = "scripts"
"""


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    if not shutil.which("apt-get"):
        pytest.skip("needs Debian's apt")
    made = Archive(tmp_path / "archive")
    made.add("bookworm", "gcc", "12-1", Source="gcc-12 (12-0)", Depends="libc")
    made.add("bookworm-security", "gcc", "12-2", Source="gcc-12", Depends="libc")
    made.add("bookworm", "python", "3.11-1", Depends="libc, perl:any (>= 5)")
    made.add("bookworm-security", "python", "3.11-2", Depends="libc, perl:any (>= 5), tzdata")
    made.add("bookworm-backports", "python", "3.11-9", Depends="libc")
    made.add("bookworm", "libc", "1:2.36-1", Source="glibc")
    made.add("bookworm-security", "libc", "1:2.36-1", Source="glibc")
    made.add("bookworm", "perl", "5.36", Depends="perl-base", Multi_Arch="allowed")
    made.add("bookworm", "perl-base", "5.36")
    made.add("bookworm", "tzdata", "2025a")
    made.add("bookworm-updates", "tzdata", "2026a")
    monkeypatch.setenv("APT_CONFIG", str(made.write()))
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    write_wanted(tmp_path, WANTED)
    return made


def write_wanted(folder: Path, text: str) -> None:
    (folder / "third_party/debian").mkdir(parents=True, exist_ok=True)
    (folder / "third_party/debian/packages.toml").write_text(text)


def locked(folder: Path) -> dict[str, lockfile.Deb]:
    return lockfile.read(folder / "third_party/debian/bookworm.lock.bzl")


def test_lock(tmp_path: Path, archive: Archive) -> None:
    assert lock.main([]) == 0
    debs = locked(tmp_path)
    assert {name: (deb.version, deb.suite) for name, deb in debs.items()} == {
        "gcc": ("12-1", "main"),
        "libc": ("1:2.36-1", "main"),
        "python": ("3.11-2", "security"),
        "tzdata": ("2026a", "updates"),
    }
    assert debs["gcc"] == lockfile.Deb(
        version="12-1",
        architecture="amd64",
        file="gcc_12-1_amd64.deb",
        sha256=hashlib.sha256(b"gcc 12-1").hexdigest(),
        size=8,
        suite="main",
        source="gcc-12",
        source_version="12-0",
    )
    assert (debs["libc"].file, debs["libc"].source) == ("libc_2.36-1_amd64.deb", "glibc")
    assert debs["libc"].source_version == "1:2.36-1"


def test_locking_again_writes_the_same_bytes(tmp_path: Path, archive: Archive) -> None:
    path = tmp_path / "third_party/debian/bookworm.lock.bzl"
    assert lock.main([]) == 0
    first = path.read_bytes()
    path.unlink()
    assert lock.main([]) == 0
    assert path.read_bytes() == first
    assert sorted(p.name for p in path.parent.iterdir()) == ["bookworm.lock.bzl", "packages.toml"]


def test_difference_is_told(tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main([]) == 0
    archive.add("bookworm-security", "python", "3.11-3", Depends="libc, zlib, perl:any")
    archive.add("bookworm", "zlib", "1")
    archive.write()
    capsys.readouterr()
    assert lock.main(["--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["kind"], row["before"], row["after"]) for row in told] == [
        ("python", "upgraded", "3.11-2 (security)", "3.11-3 (security)"),
        ("tzdata", "removed", "2026a (updates)", None),
        ("zlib", "added", None, "1 (main)"),
    ]
    assert locked(tmp_path)["python"].version == "3.11-3"


def test_table(tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main([]) == 0
    table = capsys.readouterr().out
    assert table.startswith("4 packages, 0.0 MB, 4 changed")
    assert "2026a (updates)" in table


def test_check(tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "third_party/debian/bookworm.lock.bzl"
    assert lock.main([]) == 0
    text = path.read_text()
    archive.add("bookworm-security", "python", "3.11-3", Depends="libc, tzdata, perl:any")
    archive.write()
    assert lock.main(["--check"]) == 0, "a newer version alone is no reason to fail"

    path.write_text(text.replace(hashlib.sha256(b"gcc 12-1").hexdigest(), "0" * 64))
    assert lock.main(["--check"]) == 1, "the archive has another file under the locked version"
    write_wanted(tmp_path, WANTED.replace('"python"]', '"python", "perl-base"]'))
    path.write_text(text)
    assert lock.main(["--check"]) == 1, "a wanted package is not locked"
    assert path.read_text() == text


def test_check_passes_over_what_vanished(tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main([]) == 0
    archive.remove("bookworm-security", "python")
    archive.add("bookworm-security", "python", "3.11-3", Depends="libc, tzdata, perl:any")
    archive.write()
    assert lock.main(["--check"]) == 0
    assert capsys.readouterr().err == "no longer to be had, so unchecked: python\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"python"]', '"pyton"]', "Unable to locate package pyton"),
        ('"perl"]', '"prel"]', "apt knows no package prel"),
        ('"perl"]', '"perl", "zsh"]', "apt knows no package zsh"),
        ('"perl"]', '"perl", "perl-base"]', "nothing in the lock needs the absent perl-base"),
        ('"perl"]', '"python"]', "python is wanted and absent"),
        ('"gcc-12"', '"gcc-13"', "frozen source gcc-13 has no package in the lock"),
        ("suite", "suit", "KeyError 'suite'"),
        ("[[want]]", "[[want", "TOMLDecodeError"),
    ],
)
def test_bad_wishes(
    tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    write_wanted(tmp_path, WANTED.replace(old, new, 1))
    assert lock.main([]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "third_party/debian/bookworm.lock.bzl").exists()


def test_frozen_source_that_another_package_needs_newer(
    tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.add("bookworm", "g++", "12-3", Source="gcc-12", Depends="gcc (= 12-2)")
    archive.remove("bookworm", "gcc")
    archive.write()
    assert lock.main([]) == 1
    assert "gcc is frozen, but only a newer archive" in capsys.readouterr().err


def test_package_from_another_source_alone(
    tmp_path: Path, archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.add("bookworm-backports", "vim", "9")
    archive.write()
    write_wanted(tmp_path, WANTED.replace('"python"]', '"python", "vim"]'))
    assert lock.main([]) == 1
    assert "vim is to be had from Debian Backports:" in capsys.readouterr().err


def test_no_lists(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main(["--no-update"]) == 1
    assert "run `apt-get update`" in capsys.readouterr().err


def test_changes_of_nothing(archive: Archive) -> None:
    assert lock.main([]) == 0
    deb = lockfile.Deb("1", "all", "f", "0", 1, "main", "s", "1")
    changed = lockfile.Deb("1", "all", "f", "1", 1, "main", "s", "1")
    assert difference.between({"a": deb}, {"a": deb}) == []
    assert [change.kind for change in difference.between({"a": deb}, {"a": changed})] == ["changed"]


def test_no_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(apt.AptError, match="apt-cache is not installed"):
        apt.Apt(tmp_path / "state", "amd64").offered(["a"])
