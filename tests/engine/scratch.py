"""Folders and processes that a test takes and gives back whatever happens."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

# A socket's path may have 107 bytes, and a test's own folder under Bazel is longer than that.
_SHORT = "/tmp"


def roomy() -> Path:
    """Where gigabytes may lie: the test's own folder, else /var/tmp (/tmp may be in memory)."""
    return Path(os.environ.get("TEST_TMPDIR", "/var/tmp"))


@contextmanager
def folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder with a short path (or under `parent`); mounts in it are undone and it is removed.

    Raises:
        OSError: at the end, when something in it cannot be removed.
    """
    path = Path(tempfile.mkdtemp(prefix="moet-", dir=parent or _SHORT))
    try:
        yield path
    finally:
        unmount_below(path)
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            # A process that is just going may have written once more.
            time.sleep(1)
            unmount_below(path)
            shutil.rmtree(path)


def mounts_below(path: Path) -> list[str]:
    """Mount points at or under `path`, innermost first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [point for point in points if point == str(path) or point.startswith(f"{path}/")]
    return sorted(below, key=len, reverse=True)


def unmount_below(path: Path) -> None:
    """Undo every mount at or under `path`; one that is still busy goes when its last user does."""
    for point in mounts_below(path):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


@contextmanager
def process(
    command: list[str], log: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A service that is stopped at the end, and that the kernel stops should this process be killed."""
    _unwind_on_term()
    with log.open("wb") as output:
        running = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def processes_naming(path: Path) -> list[int]:
    """Process ids whose command line names `path`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(path).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _unwind_on_term() -> None:
    def leave(_signal: int, _frame: FrameType | None) -> None:
        # pytest takes any other exception for a failed test, and goes on.
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
