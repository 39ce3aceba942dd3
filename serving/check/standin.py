"""The stand-in server as a process of this host, for tests."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine.ports import free_port

MODEL = "deepseek-v4.1-flash"
_WAIT_SECONDS = 120
_SPECULATION = '--speculative-config={"method":"dspark","num_speculative_tokens":5}'


@dataclass(frozen=True)
class Standin:
    """A server that answers at `url`; `folder` is its model's."""

    url: str
    folder: Path
    process: "subprocess.Popen[bytes]"

    def behave(self, **how: Any) -> None:
        """Tells it how to behave from now on: tests/standin/server/behaviour.py."""
        _behave(self.folder, how)


@contextmanager
def standin(folder: Path, *words: str, key: str = "", **how: Any) -> Iterator[Standin]:
    """Starts one with further arguments of vllm serve, an API key and a behaviour; it ends with the block."""
    folder.mkdir()
    _behave(folder, how)
    port = free_port()
    given = ["--host=127.0.0.1", f"--port={port}", f"--served-model-name={MODEL}", "--max-model-len=16384"]
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"VLLM_API_KEY": key} if key else {}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.standin.server", "serve", str(folder), *given, _SPECULATION, *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(f"http://127.0.0.1:{port}/health")
        yield Standin(f"http://127.0.0.1:{port}", folder, process)
    finally:
        process.kill()
        process.wait()


def _behave(folder: Path, how: dict[str, Any]) -> None:
    draft = folder / "standin.draft"
    draft.write_text(json.dumps(how))
    draft.rename(folder / "standin.json")


def _wait(url: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            direct.open(url, timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
