"""One wheel, downloaded by the host's pip from wherever its configuration says."""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from patches.engine.errors import PatchError

Progress = Callable[[str, int, int], None]

_PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(40, 4, -1)),
    "manylinux2014_x86_64",
    "manylinux2010_x86_64",
    "manylinux1_x86_64",
    "linux_x86_64",
)
_OFFERED = re.compile(r"\(from versions: (.*)\)")
_FETCHING = re.compile(r"^\s*Downloading (\S+\.whl).*\(([\d.]+) (kB|MB|GB)\)")
_TROUBLE = re.compile(r"Could not fetch URL \S+: (.*?)(?: - skipping)?$", re.MULTILINE)
_CAUSE = re.compile(r"\(Caused by (.*)\)")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
_POLL_SECONDS = 0.2
_SHOWN = 8


def download(project: str, version: str, folder: Path, progress: Progress, sha256: str | None = None) -> Path:
    """Downloads the best wheel of a version for CPython 3.11 on x86-64 Linux into the empty `folder`.

    The wheel is not installed, so an interpreter or a glibc that this host lacks is no hindrance. With `sha256`
    only that file will do. `progress` is told (file, bytes so far, bytes in all). Returns the file. Raises
    PatchError, with the versions that are offered, where there is none.
    """
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{project}=={version}" + (f" --hash=sha256:{sha256}" if sha256 else "") + "\n")
    # Only at -vv does every pip say why an index could not be read.
    command = [_python(), "-m", "pip", "download", "-vv", "--no-deps", "--no-cache-dir", "--ignore-requires-python"]
    command += ["--progress-bar", "off", "--no-input", "--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", "3.11", "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    command += ["--dest", str(folder / "done"), "-r", str(wanted)]
    said = _run(command, folder, progress)
    found = sorted((folder / "done").glob("*.whl")) if (folder / "done").is_dir() else []
    if len(found) != 1:
        raise PatchError(_why(said, project, version, sha256))
    return found[0]


def _python() -> str:
    """An interpreter that has pip: the running one, else the host's."""
    for program in (sys.executable, shutil.which("python3")):
        if program and not subprocess.run(
            [program, "-m", "pip", "--version"], env=_environment(), capture_output=True, check=False
        ).returncode:
            return program
    raise PatchError("pip is needed to download a wheel, and python3 has none: apt-get install python3-pip")


def _environment(folder: Path | None = None) -> dict[str, str]:
    # The program's own packages are not pip's, and a constraint of the host's must not forbid the version asked for.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    kept |= {"PIP_CONSTRAINT": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "LC_ALL": "C.UTF-8"}
    return kept | ({"TMPDIR": str(folder)} if folder else {})


def _run(command: list[str], folder: Path, progress: Progress) -> str:
    """Runs pip with its drafts below `folder`; their size tells how far it is, whatever pip's version."""
    said: list[str] = []
    drafts = folder / "drafts"
    drafts.mkdir()
    with subprocess.Popen(
        command,
        env=_environment(drafts),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_end_with_parent,
    ) as running:
        done = threading.Event()
        reader = threading.Thread(target=_read, args=(running, said, done))
        reader.start()
        try:
            while not done.wait(_POLL_SECONDS):
                if (fetching := _fetching(said)) is not None:
                    progress(fetching[0], _size(drafts), fetching[1])
        except BaseException:
            running.kill()
            raise
        finally:
            reader.join()
    return "".join(said)


def _read(running: "subprocess.Popen[str]", said: list[str], done: threading.Event) -> None:
    with contextlib.suppress(ValueError):
        said.extend(running.stdout or ())
    done.set()


def _fetching(said: list[str]) -> tuple[str, int] | None:
    for line in reversed(said):
        if match := _FETCHING.match(line):
            return match[1], int(float(match[2]) * _UNITS[match[3]])
    return None


def _size(folder: Path) -> int:
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                yield os.stat(os.path.join(place, name)).st_size


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _why(said: str, project: str, version: str, sha256: str | None) -> str:
    asked = f"{project} {version}"
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in said:
        return f"{asked}: the index has another file than the locked one (sha256 {sha256}): look into why it changed"
    trouble = _TROUBLE.search(said)
    offered = _OFFERED.search(said)
    versions = offered[1].split(", ") if offered and offered[1] != "none" else []
    if versions and version not in versions:
        there = _near(versions, version)
        return f"{asked}: no wheel of it for CPython 3.11 on x86-64 Linux is offered; there are {there}"
    if versions and sha256:
        return f"{asked}: the index has no file with the locked sha256 {sha256} any more"
    if trouble:
        cause = _CAUSE.search(trouble[1])
        return f"{asked}: pip could not ask the index: {(cause[1] if cause else trouble[1])[:200]}"
    if re.search(r"\.whl is invalid", said):
        return f"{asked}: what the index sent is no whole wheel: the line may have been cut, try again"
    if offered and not versions:
        return f"{asked}: pip finds no wheel of {project} at all: look at `pip config list` and the name"
    last = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()[-1:] or ["nothing"]
    return f"{asked}: pip could not download it; it said: {last[0][:300]}"


def _near(versions: list[str], version: str) -> str:
    """The newest versions, newest first, and those that begin like the one asked for."""
    newest = versions[::-1]
    start = ".".join(version.split(".")[:2])
    alike = [known for known in newest if known == start or known.startswith(f"{start}.")]
    listed = list(dict.fromkeys([*alike, *newest]))
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
