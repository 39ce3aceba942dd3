"""One container of an engine: a handle that asks the engine anew each time."""

import io
import re
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import docker.errors

from images.engine.docker_images import DockerImages
from images.engine.errors import EngineError
from images.engine.member import first_file
from serving.containers import state
from serving.containers.following import Following
from serving.containers.state import ContainerState

# Docker's two ways to say that a published port is not free: a program has it, or another container.
_TAKEN = re.compile(r"listen \w+ (\S+): bind: address already in use|Bind for (\S+) failed: port is already allocated")


class Container:
    """A container by its id, whatever it is called.

    Every method but state() and remove() raises EngineError where the container is gone, the engine refuses, or
    nothing answers; these two only for the latter.
    """

    def __init__(self, engine: DockerImages, container_id: str) -> None:
        self.id = container_id
        self._engine = engine
        self._api: Any = engine.api

    def state(self) -> ContainerState:
        """What it is doing now."""
        with self._engine.asking(f"tell of container {self._short}"):
            try:
                return state.parse(self._api.inspect_container(self.id))
            except docker.errors.NotFound:
                return state.GONE

    def environment(self) -> dict[str, str]:
        """The variables that it was made with: the image's, the launch's, and its API key."""
        with self._engine.asking(f"tell of container {self._short}"):
            listed = self._api.inspect_container(self.id)["Config"].get("Env") or []
        return {name: value for name, _, value in (one.partition("=") for one in listed)}

    def start(self) -> None:
        """Starts it; nothing where it runs already."""
        with self._engine.asking(f"start container {self._short}"):
            try:
                self._api.start(self.id)
            except docker.errors.APIError as error:
                if taken := _TAKEN.search(str(error.explanation or "")):
                    where = taken[1] or taken[2]
                    raise EngineError(
                        f"{where} is taken by another program: choose another port, or end that one: ss -ltnp tells"
                    ) from None
                raise

    def stop(self, seconds: int) -> None:
        """Sends SIGTERM, and SIGKILL after `seconds`; nothing where it does not run."""
        with self._engine.asking(f"stop container {self._short}"):
            self._api.stop(self.id, timeout=seconds)

    def kill(self) -> None:
        """Sends SIGKILL; nothing where it does not run."""
        with self._engine.asking(f"kill container {self._short}"):
            try:
                self._api.kill(self.id)
            except docker.errors.APIError as error:
                if error.status_code != 409 or self.state().running:
                    raise

    def restart(self, seconds: int) -> None:
        """Stops it as stop() does and starts it."""
        with self._engine.asking(f"restart container {self._short}"):
            self._api.restart(self.id, timeout=seconds)

    def remove(self) -> None:
        """Kills and removes it, with its anonymous volumes; nothing where it is gone."""
        with self._engine.asking(f"remove container {self._short}"), suppress(docker.errors.NotFound):
            try:
                self._api.remove_container(self.id, force=True, v=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:
                    raise
                # Another has it removed already; that must end before its name is free.
                self._api.wait(self.id, condition="removed")

    def rename(self, name: str) -> None:
        """Calls it `name`, which no other may have."""
        with self._engine.asking(f"rename container {self._short} to {name}"):
            self._api.rename(self.id, name)

    def logs(self, tail: int | None = None, since: float | None = None) -> str:
        """What it wrote to stdout and stderr: the last `tail` lines, what came after `since` (epoch), or all."""
        with self._engine.asking(f"show the log of container {self._short}"):
            found: bytes = self._api.logs(self.id, tail="all" if tail is None else tail, **_since(since))
        return found.decode(errors="replace")

    def follow(self, since: float | None = None) -> Following:
        """The lines of its log from `since` (epoch) or its beginning, and then as they are written."""
        with self._engine.asking(f"show the log of container {self._short}"):
            return Following(self._api.logs(self.id, stream=True, follow=True, **_since(since)))

    def cpu_seconds(self) -> float | None:
        """What its processes have computed for, in seconds; None where the engine does not say."""
        with self._engine.asking(f"measure container {self._short}"):
            found = self._api.stats(self.id, stream=False, one_shot=True)
        used = (found.get("cpu_stats", {}).get("cpu_usage") or {}).get("total_usage")
        return used / 1e9 if used else None

    def read_file(self, path: str) -> bytes | None:
        """The bytes of the regular file at an absolute path in it; None where there is none. Mounts are seen."""
        with self._engine.asking(f"read {path} of container {self._short}"):
            try:
                chunks, _ = self._api.get_archive(self.id, path)
                return first_file(iter(chunks), path)
            except docker.errors.NotFound:
                self._held()
                return None

    def write_file(self, path: str, data: bytes, uid: int, mode: int) -> None:
        """Puts a file at an absolute path in it, whose folder must be there; owner and group are `uid`."""
        folder, _, name = path.rpartition("/")
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.uid, entry.gid = len(data), mode, uid, uid
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as out:
            out.addfile(entry, io.BytesIO(data))
        with self._engine.asking(f"write {path} of container {self._short}"):
            self._api.put_archive(self.id, folder or "/", tar.getvalue())

    def run_in(self, command: Sequence[str]) -> tuple[int, str]:
        """Runs a command in it, while it runs; its exit status, and stdout and stderr together."""
        with self._engine.asking(f"run {command[0]} in container {self._short}"):
            made = self._api.exec_create(self.id, list(command))["Id"]
            output: bytes = self._api.exec_start(made)
            return int(self._api.exec_inspect(made)["ExitCode"]), output.decode(errors="replace")

    def signalled(self, since: float) -> bool:
        """Whether somebody had the engine stop or kill it after `since` (epoch). An engine forgets it with its end."""
        asked = {"container": [self.id], "event": ["kill"]}
        with self._engine.asking(f"tell what happened to container {self._short}"):
            events = self._api.events(since=since, until=time.time(), filters=asked, decode=True)
            return any(True for _ in events)

    @property
    def _short(self) -> str:
        return self.id[:12]

    def _held(self) -> None:
        """Raises docker.errors.NotFound where the container itself is gone."""
        self._api.inspect_container(self.id)


def _since(since: float | None) -> dict[str, float]:
    # The SDK refuses 0, which is all of it.
    return {"since": float(since)} if since else {}
