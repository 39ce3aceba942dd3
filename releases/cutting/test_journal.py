from pathlib import Path

import pytest

from releases.cutting import journal
from tools.cli.errors import UserError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_bytes(b"old")
    return tmp_path / "tree"


def begun(tree: Path) -> Path:
    path = tree.parent / "git/journal.json"
    journal.begin(path, journal.plan(tree, "the work", {"x": "y"}, {"a": b"new", "b/c": b"\xff"}))
    return path


def test_nothing_begun_nothing_done(tree: Path) -> None:
    assert journal.finish(tree.parent / "git/journal.json", tree) is None


def test_what_was_begun_is_done(tree: Path) -> None:
    path = begun(tree)
    assert (tree / "a").read_bytes() == b"old"
    made = journal.finish(path, tree)
    assert made is not None
    assert (made.about, made.facts) == ("the work", {"x": "y"})
    assert ((tree / "a").read_bytes(), (tree / "b/c").read_bytes()) == (b"new", b"\xff")
    assert not path.exists()
    assert journal.finish(path, tree) is None


def test_what_was_done_in_part_is_ended(tree: Path) -> None:
    path = begun(tree)
    (tree / "a").write_bytes(b"new")
    (tree / ".a.123.partial").write_bytes(b"ne")
    journal.finish(path, tree)
    assert sorted(file.name for file in tree.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("name", ["a", "b/c"])
def test_what_others_wrote_stops_it_before_anything_is_written(tree: Path, name: str) -> None:
    path = begun(tree)
    (tree / name).parent.mkdir(exist_ok=True)
    (tree / name).write_bytes(b"mine")
    with pytest.raises(UserError, match=rf"^{name}: was changed after the work was begun and not ended"):
        journal.finish(path, tree)
    assert (tree / name).read_bytes() == b"mine"
    assert {file.read_bytes() for file in tree.rglob("*") if file.is_file()} <= {b"old", b"mine"}
    assert path.exists()
