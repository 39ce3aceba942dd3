"""Lines as vLLM 0.33.0 logs them (vllm/logger.py:28): all processes on stderr."""

import os
import sys
import time


def line(process: str, file: str, message: str, level: str = "INFO") -> None:
    """Logs one message of a process, as written by FILE:LINE."""
    when = time.strftime("%m-%d %H:%M:%S")
    raw(f"({process} pid={os.getpid()}) {level} {when} [{file}] {message}")


def raw(text: str) -> None:
    """Writes a line as it is."""
    print(text, file=sys.stderr, flush=True)
