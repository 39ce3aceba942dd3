"""The killer kills where it says, and only there."""

from pathlib import Path

import pytest

from tests.faults import killer

_PROGRAM = """
import subprocess, sys, time
from pathlib import Path
Path("one").write_text("1")
Path("one").rename("two")
Path("two").read_text()
subprocess.run([sys.executable, "-c", "open('three', 'w')"], check=True)
print("end")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "path").mkdir()
    (tmp_path / "path/a_program.py").write_text(_PROGRAM)
    (tmp_path / "work").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    return tmp_path / "work"


def test_events(folder: Path) -> None:
    events = killer.events("a_program", [], folder)
    assert [event.partition(" ")[0] for event in events] == ["open", "os.rename", "subprocess.Popen"]


@pytest.mark.parametrize(("at", "left"), [(1, []), (2, ["one"]), (3, ["two"]), (4, ["three", "two"])])
def test_killed_before_each(folder: Path, at: int, left: list[str]) -> None:
    outcome = killer.run(at, "a_program", [], folder)
    assert outcome.killed is (at < 4) and outcome.output == ("end\n" if at == 4 else "")
    assert sorted(path.name for path in folder.iterdir()) == left


@pytest.mark.parametrize(("at", "later", "left"), [(1, 0, ["one"]), (1, 1, ["two"]), (2, 0, ["three", "two"])])
def test_of_events_that_match(folder: Path, at: int, later: int, left: list[str]) -> None:
    outcome = killer.run(at, "a_program", [], folder, only="rename one", later=later)
    assert outcome.killed is (at == 1)
    assert sorted(path.name for path in folder.iterdir()) == left


def test_a_program_that_fails_has_no_events(folder: Path) -> None:
    (folder / "one").mkdir()
    with pytest.raises(AssertionError, match="IsADirectoryError"):
        killer.events("a_program", [], folder)


def test_spread() -> None:
    assert list(killer.spread(3, 10)) == [1, 2, 3]
    assert list(killer.spread(100, 4)) == [1, 34, 67, 100]
    assert list(killer.spread(0, 4)) == []
