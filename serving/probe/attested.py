"""What the image's entry point reported before it became the server (serving/runtime/report.py), from the log."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from images.manifest import model
from serving.runtime import report

_PREFIX = "moet: "
_HEAD = re.compile(r"(?P<tag>\S+) \(.*\): attested, (?P<files>\d+) files \(.*\), manifest (?P<manifest>[0-9a-f]{12})")
_STEP = re.compile(r"(?P<number>\d+) +(?P<name>\S+) +\S+ +(?P<switch>\S+) +(?P<state>on|OFF)\b.*")
# The report is the first thing that an image of Moet's says; other programs' logs are not read to their end.
_SEARCHED = 200


@dataclass(frozen=True)
class Step:
    """A step of the image: its number, its name, and whether it is live."""

    number: int
    name: str
    live: bool


@dataclass(frozen=True)
class Attested:
    """A report of an image that is what its manifest says.

    Attributes:
        tag: of the image, as its manifest has it.
        files: how many were compared.
        manifest: the first 12 hexadecimal digits of the manifest's sha256.
        steps: in order.
    """

    tag: str
    files: int
    manifest: str
    steps: tuple[Step, ...]


def attested(log: str | Iterable[str]) -> Attested | None:
    """The report at the beginning of a log, or of its lines; None where there is none, or one of a mismatch.

    Reads no further than one line after the report, so that lines may be given while they are written.
    """
    lines = log.splitlines() if isinstance(log, str) else log
    head = None
    steps = []
    for number, line in enumerate(lines):
        if head is None and number >= _SEARCHED:
            break
        text = line.rstrip().removeprefix(_PREFIX)
        if head is None:
            head = _HEAD.fullmatch(text)
        elif not line.startswith(_PREFIX):
            break
        elif step := _STEP.fullmatch(text):
            steps.append(Step(int(step["number"]), step["name"], step["state"] == "on"))
    if head is None:
        return None
    return Attested(head["tag"], int(head["files"]), head["manifest"], tuple(steps))


def from_json(text: str) -> Attested | None:
    """The report as `moet-serve attest --json` prints it; None where it is one of a mismatch, or none at all."""
    try:
        found = model.loads(text.encode())
        if found["schema"] != report.SCHEMA or not found["ok"]:
            return None
        steps = tuple(Step(step["number"], step["name"], step["live"] is True) for step in found["steps"])
        return Attested(found["tag"], sum(found["files"].values()), found["manifest_sha256"][:12], steps)
    except (model.DataError, KeyError, TypeError, AttributeError):
        return None
