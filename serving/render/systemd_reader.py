"""For tests: what systemd's own parser reads in a unit."""

import os
import re
import subprocess
from pathlib import Path

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/bin:/bin"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def verify(unit: Path, debug: bool = False) -> str:
    """What systemd's own parser complains of in a unit; with `debug`, all that it read in it."""
    environment = {"PATH": _PATH, **({"SYSTEMD_LOG_LEVEL": "debug"} if debug else {})}
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout if debug else done.stderr or f"status {done.returncode}" * bool(done.returncode)


def words(line: str) -> list[str]:
    """A command line as systemd prints it, split and unescaped."""
    found = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        found.append(plain or re.sub(r"\\(x[0-9a-f]{2}|.)", lambda hit: _unescaped(hit[1]), quoted))
    return found


def _unescaped(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) == 3 else _ESCAPES.get(code, code)
