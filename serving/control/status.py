"""What a server is doing: its generation, its container, whether it is ready, live figures, what is under way."""

from typing import Any

from images.engine.errors import EngineError
from images.manifest import model
from serving.control.fleet import Member
from serving.control.session import Session
from serving.generations import store
from serving.generations.generation import Generation
from serving.generations.server import Server
from serving.probe.api import Api
from serving.probe.asking import ProbeError
from serving.probe.metrics import Progress, metrics
from tools.cli.output import Output

SCHEMA = "moet.serve-status.v1"
_METRICS_SECONDS = 5


def status(session: Session) -> bool:
    """Prints it; returns whether the server is ready. Raises EngineError."""
    server, out = session.server, session.out
    current = server.current
    member = session.sequence.fleet.serving()
    ready, why = _readiness(session, current, member)
    live = _live(session, current, member) if ready else None
    under_way = _under_way(server)
    if current is None:
        out.line(f"{server.name}: nothing was served yet")
    else:
        since = f", made {current.at} by {current.who}"
        out.line(f"{server.name}: generation {current.number} ({server.place(current)}) of {current.image.name}{since}")
        out.line(f"container: {_container(member)}")
        out.line(f"API: {Api.of(current.launch, None).base_url}, {'ready' if ready else f'not ready: {why}'}")
    if live:
        out.line(_figures(live))
    if server.previous:
        out.line(f"previous: generation {server.previous} of {server.generation(server.previous).image.name}")
    _trouble(server, under_way, out)
    out.document({
        "schema": SCHEMA,
        "server": server.name,
        "generation": server.running,
        "place": server.place(current) if current else None,
        "previous": server.previous,
        "image": current.image.name if current else None,
        "api": Api.of(current.launch, None).base_url if current else None,
        "ready": ready,
        "why": why or None,
        "container": _document(member),
        "live": None if live is None else _numbers(live),
        "operation": model.encode(server.operation) if server.operation else None,
        "at_work": under_way == "at work",
        "failure": model.encode(server.failure) if server.failure else None,
    })
    return ready


def _readiness(session: Session, current: Generation | None, member: Member | None) -> tuple[bool, str]:
    if current is None:
        return False, "nothing was served yet"
    if session.server.stopped:
        return False, "it was stopped; `moet serve up` starts it again"
    if session.server.operation:
        return False, "a change is under way"
    if member is None:
        return False, "there is no container of it; `moet serve up` starts it again"
    if member.generation != current.number:
        return False, f"the container is of generation {member.generation}"
    found = session.starter.readiness(member.container, current)
    return found.ok, found.why


def _live(session: Session, current: Generation | None, member: Member | None) -> Progress | None:
    if current is None or member is None:
        return None
    try:
        return metrics(session.starter.api(member.container, current), _METRICS_SECONDS)
    except (ProbeError, EngineError) as error:
        session.out.note(f"no live figures: {error}")
        return None


def _under_way(server: Server) -> str:
    """Nothing, "at work" where a process is at it, or "interrupted"."""
    if server.operation is None:
        return ""
    return "at work" if store.held(server.name) else "interrupted"


def _trouble(server: Server, under_way: str, out: Output) -> None:
    operation, failure = server.operation, server.failure
    if operation:
        what = f"to generation {operation.target}" if operation.target else "to no server"
        advice = "" if under_way == "at work" else ": `moet serve up` ends it, or goes back"
        out.line(f"under way: {what}, {operation.phase}, since {operation.at}, {under_way}{advice}", "yellow")
    if failure:
        log = f" ({failure.log})" if failure.log else ""
        out.line(f"last failure: generation {failure.generation}, {failure.at}: {failure.why}{log}", "red")


def _container(member: Member | None) -> str:
    if member is None:
        return "none"
    state = member.state
    ended = "" if member.live or state.exit_code is None else f", exit status {state.exit_code}"
    memory = ", out of memory" if state.oom_killed else ""
    return f"{state.name} ({member.container.id[:12]}) is {state.status}{ended}{memory}"


def _figures(live: Progress) -> str:
    requests = f"{live.running} requests run, {live.waiting} wait"
    tokens = f"{live.prompt_tokens:,} tokens of prompts and {live.generation_tokens:,} generated since the start"
    return f"live: {requests}; {tokens}; KV cache {live.kv_cache_usage:.0%}"


def _numbers(live: Progress) -> dict[str, Any]:
    names = ("running", "waiting", "prompt_tokens", "generation_tokens", "kv_cache_usage")
    return {name: getattr(live, name) for name in names}


def _document(member: Member | None) -> dict[str, Any] | None:
    if member is None:
        return None
    state = member.state
    return {
        "id": member.container.id,
        "name": state.name,
        "generation": member.generation,
        "status": state.status,
        "exit_code": state.exit_code,
        "oom_killed": state.oom_killed,
        "started_at": state.started_at,
    }
