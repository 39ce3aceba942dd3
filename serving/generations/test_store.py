import os
import threading
from pathlib import Path

import pytest

from serving.control.made_up import generation
from serving.generations import place, saved_logs, store
from serving.generations.server import SCHEMA, Server
from tools.cli.errors import UserError

AT = "2026-01-02T03:04:05+00:00"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_nothing_recorded_is_an_empty_state_and_writes_nothing(home: Path) -> None:
    assert store.read("toy") == Server(SCHEMA, "toy")
    assert os.listdir(home) == [] and place.names() == []
    with pytest.raises(UserError, match="`moet serve up PROFILE` starts one"):
        store.only()


def test_written_state_is_for_its_owner_alone(home: Path) -> None:
    store.write(Server(SCHEMA, "toy").staged(generation(1), AT))
    assert store.read("toy").generations == (generation(1),)
    assert (home / "moet/servers/toy").stat().st_mode & 0o077 == 0
    assert store.only() == store.named("toy") == "toy"
    store.write(Server(SCHEMA, "other"))
    with pytest.raises(UserError, match="other, toy with --server NAME"):
        store.only()
    with pytest.raises(UserError, match="'tou' is no server of this user's; there are other, toy"):
        store.named("tou")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "expected an object"),
        ('{"schema": "moet.server.v1", "name": "toy", "generations": [], "more": 1}', "more: unknown key"),
        ('{"schema": "moet.server.v2", "name": "toy"}', "newer than moet.server.v1"),
        ('{"schema": "moet.state.v1", "name": "toy"}', "schema: expected one of moet.server.v1"),
    ],
)
def test_what_cannot_be_read_is_named_and_left(text: str, words: str) -> None:
    where = store.path("toy")
    where.parent.mkdir(parents=True)
    where.write_text(text)
    with pytest.raises(UserError) as caught:
        store.read("toy")
    message = str(caught.value)
    assert message.startswith(f"{where}: ") and words in message and "\n" not in message
    assert where.read_text() == text


def test_lock_is_one_for_all_and_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_WAIT_SECONDS", 0.2)
    assert not store.held("toy")
    said: list[str] = []
    with store.locked("toy", said.append):
        assert store.held("toy")
        refused: list[UserError] = []

        def second() -> None:
            try:
                with store.locked("toy", said.append):
                    pass
            except UserError as error:
                refused.append(error)

        other = threading.Thread(target=second)
        other.start()
        other.join()
        assert f"held by process {os.getpid()}" in str(refused[0])
    assert not store.held("toy")
    assert said == [f"waiting for process {os.getpid()}, which holds {store.lock_path('toy')}"]


def test_saved_logs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_logs, "_BYTES", 10)
    monkeypatch.setattr(saved_logs, "_FILES", 3)
    paths = []
    for number in range(5):
        path = saved_logs.save("toy", number, AT, "crashed", "x" * 100 + f"end {number}")
        os.utime(path, (number, number))
        paths.append(path)
    again = saved_logs.save("toy", 4, AT, "crashed", "more")
    assert again != paths[4]
    assert paths[4].read_text() == f"toy, generation 4, {AT}: crashed\nxxxxxend 4"
    assert sorted(one.name for one in saved_logs.folder("toy").iterdir()) == sorted(
        [paths[3].name, paths[4].name, again.name]
    )
