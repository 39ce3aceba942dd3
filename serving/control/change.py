"""A change from the command's side: settle, find, check, ask, and only then stop anything."""

from dataclasses import dataclass, replace
from typing import Any

from serving.control import ask, checks, had
from serving.control.candidate import Candidate, of_earlier, of_request, of_switches
from serving.control.fleet import Member
from serving.control.session import Session
from serving.generations import compat, diff
from serving.generations.generation import Generation
from serving.launch import key
from serving.launch.request import Request
from serving.probe.api import Api
from tools.cli.errors import UserError

SCHEMA = "moet.serve-change.v1"


@dataclass(frozen=True)
class How:
    """What a person decides of a change.

    Attributes:
        yes: do not ask.
        preflight: look at the host first.
        own_kv: give a disk tier with blocks of another format a folder of its own.
        registry: HOST/NAME of the repository that a release is pulled from, where the engine lacks it.
        plain_http: allow plain HTTP there.
    """

    yes: bool = False
    preflight: bool = True
    own_kv: bool = False
    registry: str | None = None
    plain_http: bool = False


def settle(session: Session) -> None:
    """Ends an operation that was interrupted, and says how."""
    if done := session.sequence.settle():
        session.out.note(f"settled: {done}")


def up(session: Session, asked: Request, how: How) -> None:
    """Serves what is asked for. Raises UserError."""
    settle(session)
    found = had.have(asked.image, None, session.containers, session.known, how.registry, how.plain_http, session.out)
    _serve(session, of_request(session, asked, found), how)


def up_again(session: Session, how: How) -> None:
    """Serves the generation that ran last. Raises UserError."""
    settle(session)
    current = session.server.current
    if current is None:
        raise UserError(f"{session.server.name} has served nothing yet: name a PROFILE")
    _have(session, current, how)
    _serve(session, of_earlier(session, current, "up"), how)


def rollback(session: Session, number: int | None, how: How) -> None:
    """Serves an earlier generation again, by default the previous one. Raises UserError."""
    settle(session)
    number = session.server.previous if number is None else number
    if number is None:
        raise UserError(f"{session.server.name} has no previous generation: `moet serve generations` lists all")
    earlier = session.server.generation(number)
    _have(session, earlier, how)
    _serve(session, of_earlier(session, earlier, "rollback"), how)


def switch(session: Session, given: list[str], how: How) -> None:
    """Serves the running generation with other switches. Raises UserError."""
    settle(session)
    current = session.server.current
    if current is None:
        raise UserError(f"{session.server.name} has served nothing yet: `moet serve up PROFILE --set {given[0]}`")
    _have(session, current, how)
    _serve(session, of_switches(session, current, given), how)


def down(session: Session) -> None:
    """Stops the server."""
    before = session.server
    session.sequence.down()
    running = before.current
    again = f"; `moet serve up` starts generation {running.number} again" if running else ""
    session.out.line(f"{before.name}: stopped{again}")
    session.out.document({**_document(session), "changed": not before.stopped})


def _have(session: Session, earlier: Generation, how: How) -> None:
    image = earlier.image
    had.have(
        image.asked, image.image_id, session.containers, session.known, how.registry, how.plain_http, session.out
    )


def _serve(session: Session, candidate: Candidate, how: How) -> None:
    """The part that all changes have in common."""
    candidate = replace(candidate, generation=_fitted(session, candidate.generation, how.own_kv))
    made, server = candidate.generation, session.server
    current = server.current
    same = current is not None and made.launch == current.launch and made.image.image_id == current.image.image_id
    member = session.sequence.fleet.serving()
    # What is missing or cannot be is told before the question.
    secret = key.secret(made.launch.key, session.environment)
    session.containers.check(made.launch)
    if current and same and member and not server.stopped and _serves(session, member, current, secret):
        _report(session, f"generation {current.number} serves this already", changed=False)
        return
    if current and current.profile != made.profile:
        session.out.note(f"the profile is another than that of generation {current.number}")
    if how.preflight:
        checks.check(session, candidate, replaces=member is not None)
    if member and member.live and current and not how.yes:
        differs = diff.brief(current, made) or "the launch differs"
        what = "start it anew" if same else f"start generation {made.number} ({differs})"
        ask.confirm(f"generation {member.generation} runs: stop it and {what}?")
    if current and same:
        session.sequence.start_again()
        _report(session, f"generation {current.number} serves again")
    else:
        session.sequence.replace(made)
        _report(session, f"generation {made.number} serves")


def _serves(session: Session, member: Member, current: Generation, secret: str | None) -> bool:
    """Whether a container is ready, with the key that is to be the server's."""
    same_key = session.starter.api(member.container, current).key == secret
    return same_key and session.starter.ready(member.container, current)


def _fitted(session: Session, made: Generation, own: bool) -> Generation:
    """The generation with disk tiers that have no blocks of another format."""
    name, before = session.server.name, compat.writers()
    launch, notes = compat.fit(made.launch, made.image, name, made.number, before, own)
    for note in notes:
        session.out.note(note)
    tuning = compat.fit(made.tuning, made.image, name, made.number, before, own)[0] if made.tuning else None
    return replace(made, launch=launch, tuning=tuning)


def _report(session: Session, what: str, changed: bool = True) -> None:
    current = session.server.current
    if current is None:
        raise ValueError("nothing is served")
    session.out.line(f"{what}: {current.image.name} at {Api.of(current.launch, None).base_url}")
    if session.server.previous and changed:
        session.out.line(f"back: moet serve rollback (generation {session.server.previous})")
    session.out.document({**_document(session), "changed": changed})


def _document(session: Session) -> dict[str, Any]:
    server, current = session.server, session.server.current
    return {
        "schema": SCHEMA,
        "server": server.name,
        "running": None if server.stopped else server.running,
        "previous": server.previous,
        "stopped": server.stopped,
        "image": current.image.name if current else None,
        "api": Api.of(current.launch, None).base_url if current else None,
    }
