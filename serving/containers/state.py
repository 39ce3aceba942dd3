"""What an engine says of a container."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

# Docker's own words (container.State), and `gone` for a container that the engine does not have any more.
Status = Literal["created", "running", "restarting", "paused", "exited", "dead", "removing", "gone"]
# Python's datetime takes microseconds, Docker writes nanoseconds.
_FRACTION = re.compile(r"(\.\d{1,6})\d*")
_NEVER = "0001-01-01T00:00:00Z"


@dataclass(frozen=True)
class ContainerState:
    """A container at one moment.

    Attributes:
        name: as it is called now; "" for one that is gone.
        status: in Docker's words.
        exit_code: of the last run; None for one that never ended.
        oom_killed: whether the kernel killed a process of it for want of memory.
        started_at: seconds since the epoch; None for one that was never started.
        finished_at: likewise; None while the first run lasts.
        error: why the engine could not start it; "" where it could.
        image_id: sha256:<hex>, the engine's own.
        labels: the container's, the image's among them.
        auto_remove: whether the engine removes it once it has ended.
    """

    name: str
    status: Status
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: float | None = None
    finished_at: float | None = None
    error: str = ""
    image_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    auto_remove: bool = False

    @property
    def gone(self) -> bool:
        """Whether the engine has no such container any more."""
        return self.status == "gone"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.status == "running"


GONE = ContainerState("", "gone")


def parse(found: Mapping[str, Any]) -> ContainerState:
    """A state from what GET /containers/ID/json answers."""
    state = found["State"]
    finished = _seconds(state.get("FinishedAt", ""))
    return ContainerState(
        name=str(found["Name"]).removeprefix("/"),
        status=cast(Status, state["Status"]),
        exit_code=int(state["ExitCode"]) if finished is not None else None,
        oom_killed=bool(state.get("OOMKilled")),
        started_at=_seconds(state.get("StartedAt", "")),
        finished_at=finished,
        error=" ".join(str(state.get("Error") or "").split()),
        image_id=str(found["Image"]),
        labels=dict(found["Config"].get("Labels") or {}),
        auto_remove=bool((found.get("HostConfig") or {}).get("AutoRemove")),
    )


def _seconds(text: str) -> float | None:
    if not text or text == _NEVER:
        return None
    return datetime.datetime.fromisoformat(_FRACTION.sub(r"\1", text)).timestamp()
