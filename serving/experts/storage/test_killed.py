import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.experts.storage import made_up
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import AlreadyCompleteError, StorageError
from serving.experts.storage.writer import Writer

# What changes files; each call is a point at which a writer may be killed.
CALLS = ("open", "pwrite", "ftruncate", "fsync", "fdatasync", "rename", "unlink", "mkdir")


def killed_at(point: int, work: Callable[[], object], half: bool) -> bool:
    """Runs `work` in a process that is killed at its point-th call that changes files; whether it came so far.

    With `half`, a write that it is killed at has written its first half.
    """
    child = os.fork()
    if child == 0:
        left = point

        def deadly(real: Callable[..., Any], name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    if half and name == "pwrite":
                        fd, data, offset = arguments
                        real(fd, data[: len(data) // 2], offset)
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in CALLS:
            setattr(os, name, deadly(getattr(os, name), name))
        try:
            work()
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFEXITED(status) or os.WTERMSIG(status) == signal.SIGKILL
    return os.WIFSIGNALED(status)


def test_killed_anywhere_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    made_up.write(tmp_path / "whole")
    expected = made_up.files(tmp_path / "whole")
    point, resumed = 0, set()
    while True:
        point += 1
        path = tmp_path / f"{point}"
        if not killed_at(point, lambda path=path: made_up.write(path, sync_bytes=2 * made_up.SLOT), half=True):  # type: ignore[misc]
            break
        if (path / "experts.json").exists():
            Container.open(path)
            assert made_up.files(path).items() >= expected.items()
        else:
            with pytest.raises(StorageError, match=r"is not there|its writer was stopped"):
                Container.open(path)
        try:
            with Writer.open(path, made_up.header()) as writer:
                resumed.add(writer.resumed)
            made_up.write(path)
        except AlreadyCompleteError:
            pass
        assert made_up.files(path) == expected
    assert point > 30 and resumed >= {0, 2, 4, 6}


def test_killed_while_it_replaces_one_of_both_is_there(tmp_path: Path) -> None:
    old, new = (made_up.records(made_up.header(), seed) for seed in (0, 1))
    made_up.write(tmp_path / "old")
    made_up.write(tmp_path / "new", data=new)
    expected = made_up.files(tmp_path / "new")
    point, seen = 0, set()
    while True:
        point += 1
        path = tmp_path / f"{point}"
        shutil.copytree(tmp_path / "old", path)

        def replace(path: Path = path) -> None:
            made_up.write(path, data=new, replace=True, sync_bytes=1)

        if not killed_at(point, replace, half=False):
            break
        with Container.open(path) as opened:
            found = {key: bytes(opened.read(*key)) for key in opened.present()}
        assert found in (old, new)
        seen.add(found == new)
        replace()
        assert made_up.files(path) == expected
    assert seen == {False, True}


def test_killed_again_and_again(tmp_path: Path) -> None:
    made_up.write(tmp_path / "whole")
    path, kills = tmp_path / "c", 0
    # Each run comes a little further than the one before.
    while killed_at(12 + kills, lambda: made_up.write(path, sync_bytes=1), half=True):
        kills += 1
    assert kills >= 5 and made_up.files(path) == made_up.files(tmp_path / "whole")


def test_killed_by_the_clock(tmp_path: Path) -> None:
    """A writer in a process of its own, killed wherever it is."""
    of = made_up.header(layers=tuple(range(8)), experts=32)
    code = f"import sys; sys.path[:] = {sys.path!r}\nfrom pathlib import Path\n"
    code += "from serving.experts.storage import made_up\n"
    code += "of = made_up.header(layers=tuple(range(8)), experts=32)\n"
    code += "print('begins', flush=True)\n"
    # It goes on after each record that is waited for, and is killed wherever it then is.
    code += "def after(_):\n    print(1, flush=True)\n    sys.stdin.read(1)\n"
    code += "made_up.write(Path(sys.argv[1]), of, sync_bytes=20_000, after=after)\n"
    path = tmp_path / "c"
    made_up.write(tmp_path / "whole", of)
    for lines in (1, 40, 90):
        command = [sys.executable, "-c", code, str(path)]
        running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert running.stdout is not None and running.stdin is not None
        for _ in range(lines):
            running.stdout.readline()
            running.stdin.write("\n")
            running.stdin.flush()
        running.kill()
        running.communicate()
        with pytest.raises(StorageError, match=r"is not finished|is not there"):
            Container.open(path)
    with Writer.open(path, of) as writer:
        assert 40 <= writer.resumed < writer.total
    made_up.write(path, of)
    assert made_up.files(path) == made_up.files(tmp_path / "whole")
