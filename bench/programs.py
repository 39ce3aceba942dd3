"""Running other programs: their output kept, their failure one line."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
# What `bazel run` and a Python binary of Bazel leave in the environment, and other programs must not see.
_OURS = ("PYTHONPATH", "RUNFILES_DIR", "RUNFILES_MANIFEST_FILE", "RUNFILES_MANIFEST_ONLY", "TEST_TMPDIR")


Word = str | Path


class BenchError(Exception):
    """A benchmark that cannot be run here; the message is one line: what is wrong and what to do."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The user's environment with sbin on PATH, without what Bazel added, and with `more`."""
    kept = {name: value for name, value in os.environ.items() if name not in _OURS and not name.startswith("BUILD_")}
    return {**kept, "PATH": _PATH, **(more or {})}


def find(program: str, package: str) -> str:
    """The path of `program`.

    Raises:
        BenchError: it is not installed; names the Debian package.
    """
    found = shutil.which(program, path=_PATH)
    if not found:
        raise BenchError(f"{program} is not installed; apt-get install --no-install-recommends {package}")
    return found


def run(command: Sequence[Word], more: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a program to its end and return its stdout; `more` is added to its environment.

    Raises:
        BenchError: it failed; ends with its last words.
    """
    done = call(command, environment(more), folder)
    if done.returncode:
        raise BenchError(f"{Path(command[0]).name} failed with status {done.returncode}: {last_line(done)}")
    return done.stdout


def call(
    command: Sequence[Word], whole_environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end in exactly this environment and return its outcome."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=whole_environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a program wrote, of stderr where it wrote any."""
    lines = [line.strip() for line in (done.stderr + "\n" * 2 + done.stdout).splitlines() if line.strip()]
    errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return (errors or lines or ["no message"])[-1]
