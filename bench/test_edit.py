import subprocess
from pathlib import Path

import pytest

from bench import edit
from bench.programs import BenchError

PATCH = """\
Description: what for

--- a/one.py
+++ b/one.py
@@ -1,2 +1,4 @@
 # a comment of the context
+# the first
+    # the second
+code = 1
 end
"""
SERIES = "# order\nfirst.patch\nlast.patch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "patches"
    folder.mkdir()
    (folder / "series").write_text(SERIES)
    (folder / "first.patch").write_text(PATCH)
    (folder / "last.patch").write_text(PATCH)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "all")


def test_ends_the_last_comment_of_the_last_patch_with_the_mark(root: Path) -> None:
    with edit.undone(root, Path("patches")) as change:
        change.apply("(1)")
        change.apply("(2)")
        assert (root / "patches/last.patch").read_text() == PATCH.replace("the second", "the second (2)")
        assert (root / "patches/first.patch").read_text() == PATCH


def test_gives_the_bytes_and_the_mode_back_when_something_fails(root: Path) -> None:
    path = root / "patches/last.patch"
    path.chmod(0o600)

    def interrupted() -> None:
        with edit.undone(root, Path("patches")) as change:
            change.apply("(1)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == PATCH
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["first.patch", "last.patch", "series"]


def test_says_so_when_the_edit_was_committed(root: Path) -> None:
    def committed() -> None:
        with edit.undone(root, Path("patches")) as change:
            change.apply("(1)")
            commit(root)

    with pytest.raises(BenchError, match="a commit made while the benchmark's edit was in place has it"):
        committed()
    assert (root / "patches/last.patch").read_text() == PATCH


def test_refuses_a_folder_with_changes(root: Path) -> None:
    (root / "patches/first.patch").write_text("mine")
    with pytest.raises(BenchError, match=r"patches is not as committed \(M patches/first.patch\).*git checkout"):
        edit.undone(root, Path("patches")).__enter__()
    assert (root / "patches/first.patch").read_text() == "mine"


def test_refuses_a_patch_without_a_comment(root: Path) -> None:
    (root / "patches/last.patch").write_text(PATCH.replace("+# ", "+x = ").replace("+    # ", "+y = "))
    commit(root)
    with pytest.raises(BenchError, match=r"last.patch: adds no line that is a comment"):
        edit.undone(root, Path("patches")).__enter__()
