"""One verdict on a server, for cron jobs and probes: ready or not, and why. Nothing is started or stopped."""

from typing import Any

from images.engine.errors import EngineError
from serving.probe.attested import Attested
from serving.probe.ready import Readiness, attestation, ready
from serving.watch.looking import Engine, Look
from serving.watch.machine import Memory
from serving.watch.record import Record
from serving.watch.subject import Subject, Target
from tools.cli.output import Output

SCHEMA = "moet.serve-watch.v1"
_CANARY_SECONDS = 60.0


def once(subject: Subject, engine: Engine, out: Output) -> bool:
    """Prints the verdict; returns whether the server is ready. Raises UserError."""
    target = subject.target()
    look = engine.look(target, Memory())
    try:
        found = _verdict(engine, target, look)
    except EngineError as error:
        found = Readiness(False, str(error))
    why = target.operation or ("" if target.wanted else "it was stopped; `moet serve up` starts it again") or found.why
    ok = found.ok and not why
    known = Record.read(subject.name)
    out.line(f"{subject.name}: {'ready' if ok else f'not ready: {why}'}", "green" if ok else "red")
    if known is not None and known.phase == "gave up":
        out.line(f"its watchdog gave up, {known.since}: {known.why}", "red")
    out.document({
        "schema": SCHEMA,
        "server": subject.name,
        "generation": target.generation.number if target.generation else None,
        "ready": ok,
        "why": why or None,
        "container": look.state.status,
        "attested": _attested(found.attested),
        "canary_seconds": found.canary.seconds if found.canary else None,
        "watch": None if known is None else {"phase": known.phase, "since": known.since, "why": known.why or None},
    })
    return ok


def _verdict(engine: Engine, target: Target, look: Look) -> Readiness:
    if not look.seen.engine:
        return Readiness(False, "the engine does not answer")
    if look.container is None or look.api is None:
        return Readiness(False, f"its container is {look.state.status}")
    found = ready(look.container, look.api, _CANARY_SECONDS)
    if found.ok or found.canary is not None or not engine.look(target, Memory()).seen.moved:
        return found
    # A full queue keeps a token waiting. What moves computes others.
    report = attestation(look.container, look.state.started_at)
    return Readiness(report is not None, "" if report else "its engines move, and its image is not attested", report)


def _attested(found: Attested | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"tag": found.tag, "manifest": found.manifest, "off": [step.name for step in found.steps if not step.live]}
