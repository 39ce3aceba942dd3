"""The operator of a host: runs moet there as a person does, and looks at what is left afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests

from serving.control.fleet import GENERATION
from serving.generations import store
from serving.generations.server import Server
from tests.release.toy import LINE, moet
from tests.serving.terminal import Terminal
from tests.standin.host import Host

# Settings of two generations. Both leave tuning its memory, so that a first start needs no pass of its own.
FIRST, OTHER = "--set=GPU_MEM_UTIL=0.91", "--set=GPU_MEM_UTIL=0.92"
_SECONDS = 300
_MODULE = "tools.moet.main"
# As the module, but whoever finds another command at the server waits for it however busy the machine is.
_PATIENT = f"""
import sys
from serving.generations import store
from tools.moet import main
store._WAIT_SECONDS = {_SECONDS}
sys.exit(main.main())
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it said."""

    status: int
    output: str
    errors: str

    @property
    def last(self) -> str:
        """The last line on stderr: where it failed, what to do."""
        return (self.errors.strip().splitlines() or [""])[-1]


class Operator:
    """Commands on a host, whose environment this process has (tests.standin.host.enter)."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._running: list[subprocess.Popen[str]] = []
        self._terminals: list[Terminal] = []

    def run(self, verb: str, *more: str, **environment: str) -> Outcome:
        """Runs `moet serve VERB` to its end: in a process of its own where it gets more of an environment."""
        if environment:
            return self.wait(self.begin(verb, *more, **environment))
        return Outcome(*moet(*self.host.serve(verb, *more)))

    def begin(self, verb: str, *more: str, **environment: str) -> "subprocess.Popen[str]":
        """Starts `moet serve VERB`."""
        return self.begin_words(self.host.serve(verb, *more), **environment)

    def begin_patient(self, verb: str, *more: str) -> "subprocess.Popen[str]":
        """Starts `moet serve VERB`, which waits for another command for minutes, not seconds."""
        return self._begin(["-c", _PATIENT, *self.host.serve(verb, *more)], {})

    def begin_words(self, words: Sequence[str], **environment: str) -> "subprocess.Popen[str]":
        """Starts moet with these arguments."""
        return self._begin(["-m", _MODULE, *words], environment)

    def _begin(self, words: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def wait(self, process: "subprocess.Popen[str]") -> Outcome:
        """Waits for a command's end; a traceback fails the test."""
        output, errors = process.communicate(timeout=_SECONDS)
        assert "Traceback" not in errors, errors
        return Outcome(process.returncode, output, errors)

    def at_terminal(self, verb: str, *more: str, **environment: str) -> Terminal:
        """Runs `moet serve VERB` at a terminal."""
        command = [sys.executable, "-m", _MODULE, *self.host.serve(verb, *more)]
        terminal = Terminal(command, {**os.environ, "TERM": "xterm-256color", **environment})
        self._terminals.append(terminal)
        return terminal

    def leave(self) -> None:
        """Ends commands that still run, and removes the containers."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        for terminal in self._terminals:
            terminal.close()
        api = self.host.docker.client.api
        for found in api.containers(all=True):
            api.remove_container(found["Id"], force=True, v=True)

    @property
    def server(self) -> Server:
        """What moet knows of the server."""
        return store.read(LINE)

    @property
    def phase(self) -> str | None:
        """Of the operation that is under way, or was interrupted."""
        operation = self.server.operation
        return operation.phase if operation else None

    def containers(self) -> dict[str, str]:
        """The names of all containers, with their states."""
        listed = self.host.docker.client.api.containers(all=True)
        return {one["Names"][0].removeprefix("/"): one["State"] for one in listed}

    def answers(self) -> bool:
        """Whether the server answers a request."""
        try:
            found = self._ask("POST", "/v1/completions", json={"prompt": "x", "max_tokens": 1})
        except requests.RequestException:
            return False
        return found.ok

    def serves(self, number: int) -> None:
        """Holds that the generation is served, alone, that nothing is under way, and that it answers."""
        server = self.server
        assert (server.running, server.stopped, server.operation) == (number, False, None)
        assert self.containers() == {LINE: "running"} and self.answers()

    def starting(self) -> bool:
        """Whether the new generation's server is on its way: one that hangs at the phase "weights" is there to stay.

        Before that its first process takes no signal: a stop in its first second waits until it kills.
        """
        operation = self.server.operation
        if operation is None or operation.phase != "starting":
            return False
        api, target = self.host.docker.client.api, {"label": f"{GENERATION}={operation.target}", "name": f"^/{LINE}$"}
        return any(b"Loading model from scratch..." in api.logs(one["Id"]) for one in api.containers(filters=target))

    def until(self, happened: Callable[[], Any]) -> None:
        """Waits until something has happened. Raises AssertionError where it does not."""
        deadline = time.monotonic() + _SECONDS
        while not happened():
            assert time.monotonic() < deadline, f"{self.server.operation}, {self.containers()}"
            time.sleep(0.02)

    def _ask(self, method: str, path: str, **more: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, f"http://127.0.0.1:{self.host.port}{path}", timeout=60, **more)
