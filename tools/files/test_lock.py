import subprocess
import sys
from pathlib import Path

import pytest

from tools.cli.errors import UserError
from tools.files import lock

_HOLD = "import sys; sys.path[:] = sys.argv[2].split(':')\nfrom pathlib import Path\nfrom tools.files import lock\n"
_HOLD += "with lock.exclusive(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()\n"


def holder(path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _HOLD, str(path), ":".join(sys.path)]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdout and running.stdout.readline() == "held\n"
    return running


def test_second_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    running = holder(path)
    with pytest.raises(UserError, match=rf"held by process {running.pid}; wait"), lock.exclusive(path):
        pass
    running.communicate()
    with lock.exclusive(path):
        pass


def test_killed_holder_holds_nothing(tmp_path: Path) -> None:
    running = holder(tmp_path / "lock")
    running.kill()
    running.wait()
    with lock.exclusive(tmp_path / "lock"):
        pass


def test_waits_and_says_so(tmp_path: Path) -> None:
    running = holder(tmp_path / "lock")
    said: list[str] = []

    def release(text: str) -> None:
        said.append(text)
        assert running.stdin
        running.stdin.close()

    with lock.exclusive(tmp_path / "lock", wait_seconds=3600, waiting=release):
        pass
    running.wait()
    assert said == [f"waiting for process {running.pid}, which holds {tmp_path / 'lock'}"]
