"""Preflight before a change. What the server that is to be replaced holds by itself keeps no one from replacing it."""

from dataclasses import replace
from pathlib import Path

from serving.control.candidate import Candidate
from serving.control.session import Session
from serving.launch import image
from serving.preflight.host import Host, Space
from serving.preflight.preflight import preflight
from serving.preflight.result import Result
from serving.preflight.subject import Subject
from tools.cli.errors import UserError

# What the container that runs has, and gives back when it is stopped.
_OWN = "container"
_HELD = (_OWN, "GPU memory", "host memory", "shared memory")


def check(session: Session, candidate: Candidate, replaces: bool) -> None:
    """Looks at the host before anything is stopped; hints and findings are said.

    `replaces`: whether a server of ours runs, or is there, that is stopped and put aside first.

    Raises UserError where a finding would keep the server from starting.
    """
    if candidate.settings is None:
        return
    made = candidate.generation
    # The image was found by now; its tag may point elsewhere, or nowhere, when an earlier generation is served again.
    launch = replace(made.launch, image=made.image.image_id)
    subject = Subject(launch, candidate.settings, image.is_released(made.image.asked, session.known))
    findings = []
    for result in preflight(subject, _emptied(session.host) if replaces else session.host, session.out.doing):
        held = replaces and result.state == "finding" and result.check in _HELD
        if result.state == "finding" and not held:
            findings.append(result)
        if result.state in ("finding", "hint") and not (held and result.check == _OWN):
            session.out.note(_words(result, held))
    if findings:
        names = ", ".join(one.check for one in findings)
        raise UserError(f"preflight: {names}: mend that first (nothing was changed), or go on with --no-preflight")


def _emptied(host: Host) -> Host:
    """The host with nothing in /dev/shm: whether that is large enough can be told while a server runs."""

    def space(path: Path) -> Space:
        found = host.space(path)
        return replace(found, free=found.total) if path == host.shared_memory else found

    return replace(host, space=space)


def _words(result: Result, held: bool) -> str:
    if held:
        return f"preflight: {result.check}: {result.what} (not judged: the server that runs is stopped first)"
    return f"preflight: {result.state}: {result.check}: {result.what}: {result.why}: {result.mend}"
