import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from releases.rollback import state
from releases.rollback.state import Place, State
from tools.cli.errors import UserError

R0 = Place("line:base1-r0", "sha256:" + "0" * 64, "sha256:" + "a" * 64, "docker")
R1 = Place("line:base1-r1", "sha256:" + "1" * 64, "sha256:" + "b" * 64, "docker")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_nothing_recorded_is_an_empty_state(home: Path) -> None:
    found = State.read("line")
    assert (found.current, found.history) == (None, ())
    assert os.listdir(home) == []


def test_changes_are_numbered_and_kept() -> None:
    State.read("line").change("set", R1, "first").write()
    State.read("line").change("rollback", R0, "slow").write()
    State.read("line").change("undo", R1, "undo of change 2").write()
    found = State.read("line")
    assert found.current == R1
    assert [(one.number, one.what, one.before, one.after, one.why) for one in found.history] == [
        (1, "set", None, R1, "first"),
        (2, "rollback", R1, R0, "slow"),
        (3, "undo", R0, R1, "undo of change 2"),
    ]


def test_lines_do_not_meet() -> None:
    State.read("line").change("set", R1, "").write()
    assert State.read("other").current is None


def test_where_it_lies(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state.path("line") == home / "moet/lines/line.json"
    monkeypatch.setenv("HOME", str(home / "me"))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert state.path("line") == home / "me/.local/state/moet/lines/line.json"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON at line 1"),
        ('{"schema": "moet.state.v1", "line": "li', "not JSON"),
        ("[]", "expected an object"),
        ("{}", "schema: missing"),
        ('{"schema": "moet.other.v1", "line": "line", "history": []}', "schema: expected one of moet.state.v1"),
        ('{"schema": "moet.state.v1", "line": "other", "history": []}', "line: expected 'line', found 'other'"),
        ('{"schema": "moet.state.v1", "line": "line", "history": [], "more": 1}', "more: unknown key"),
        ('{"schema": "moet.state.v2", "line": "line", "news": []}', "moet.state.v2 is newer than moet.state.v1"),
        ('{"schema": "moet.state.v10"}', "newer"),
    ],
)
def test_what_cannot_be_read_is_named_and_left(text: str, words: str) -> None:
    where = state.path("line")
    where.parent.mkdir(parents=True)
    where.write_text(text)
    with pytest.raises(UserError) as caught:
        State.read("line")
    message = str(caught.value)
    assert message.startswith(f"{where}: ") and words in message and "\n" not in message
    assert where.read_text() == text


def test_a_history_that_does_not_lead_to_current_is_refused() -> None:
    State.read("line").change("set", R1, "").change("rollback", R0, "").write()
    where = state.path("line")
    whole = json.loads(where.read_bytes())
    for damaged in ({**whole, "current": whole["history"][0]["after"]}, {**whole, "history": whole["history"][1:]}):
        where.write_text(json.dumps(damaged))
        with pytest.raises(UserError, match="is no state of moet's"):
            State.read("line")


def test_a_second_process_is_told_who_is_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_WAIT_SECONDS", 0.3)
    program = "import sys; sys.path[:] = sys.argv[1].split(':')\nfrom releases.rollback import state\n"
    program += "with state.locked('line', print):\n    print('held', flush=True); sys.stdin.read()\n"
    command = [sys.executable, "-c", program, ":".join(sys.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "held\n"
        said: list[str] = []
        with pytest.raises(UserError, match=f"held by process {running.pid}"), state.locked("line", said.append):
            pass
        assert said == [f"waiting for process {running.pid}, which holds {state.path('line').with_suffix('.lock')}"]
        with state.locked("other", said.append):
            pass
