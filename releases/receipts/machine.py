"""The machine that a command ran on, and its traces taken out of what the command said."""

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SHORTEST_NAME = 3


def hardware() -> dict[str, Any]:
    """CPU model, cores that can be used, memory in bytes, and for each GPU its name, memory and driver."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "gpus": _gpus(),
    }


def software() -> dict[str, str]:
    """Kernel and Python."""
    return {"kernel": f"{platform.system()} {platform.release()}", "python": platform.python_version()}


def places(root: Path, more: Mapping[Path, str] | None = None) -> dict[str, str]:
    """Paths and names of this machine, and what to write in their place; `more` are further paths."""
    named = {Path.home(): "<home>", Path.home() / ".cache/bazel": "<bazel>", root: "<tree>", **(more or {})}
    if temporary := os.environ.get("TMPDIR"):
        named[Path(temporary)] = "<tmp>"
    found: dict[str, str] = {}
    for path, placeholder in named.items():
        for one in (path, path.resolve()):
            if len(one.parts) > 1:
                found.setdefault(str(one), placeholder)
    host = socket.gethostname()
    if len(host) >= _SHORTEST_NAME and host != "localhost":
        found[host] = "<host>"
    return found


def clean(text: str, replaced: dict[str, str]) -> str:
    """The text without terminal control, and with the machine's paths and names replaced, the longest first."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    # A line that a progress display wrote over holds what was seen last.
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    for found in sorted(replaced, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(found)}(?![\w-]|\.\w)", replaced[found], text)
    return text


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []
