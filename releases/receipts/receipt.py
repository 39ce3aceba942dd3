"""Receipts: what a command said of an image, on which hardware; the evidence that CHANGELOG.md links to."""

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.manifest import model
from releases.receipts import machine
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.files import atomic

SCHEMA = "moet.receipt.v1"
FOLDER = "docs/evidence"
Show = Callable[[bytes], None]
_KEPT = 1 << 20
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Subject:
    """The image that a receipt is about; `tag` is None where it has none."""

    tag: str | None
    digest: str


@dataclass(frozen=True)
class Hardware:
    """See machine.hardware()."""

    cpu: str
    cores: int
    memory: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Software:
    """See machine.software()."""

    kernel: str
    python: str


@dataclass(frozen=True)
class Receipt:
    """One receipt.

    `command` and `output` (both streams, as they came) are free of the machine's paths; `commit` is what was checked
    out where the command ran, `modified` the files that differed from it; `date` is RFC 3339, in UTC, of the start.
    """

    schema: str
    subject: Subject
    hardware: Hardware
    software: Software
    command: tuple[str, ...]
    exit: int
    output: str
    commit: str
    modified: tuple[str, ...]
    date: str


@dataclass(frozen=True)
class Start:
    """`commit`, `modified` and `date` of a receipt, which are those of a command's start."""

    commit: str
    modified: tuple[str, ...]
    date: str


def read(path: Path) -> Receipt:
    """Reads a receipt strictly. Raises UserError where it is missing or is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}") from None
    try:
        plain = model.loads(data)
        if isinstance(plain, dict) and plain.get("schema") != SCHEMA:
            raise UserError(f"is no receipt of this version: schema {plain.get('schema')!r}, {SCHEMA} was expected")
        return model.decode(Receipt, plain)
    except model.DataError as error:
        raise UserError(f"is no receipt: {error}") from None


def place(root: Path, out: Path) -> Path:
    """Where a receipt is to be written. Raises UserError unless it is a new .json file below docs/evidence."""
    path = out if out.is_absolute() else Path.cwd() / out
    path = Path(os.path.normpath(path))
    if not path.resolve().is_relative_to((root / FOLDER).resolve()) or path.suffix != ".json":
        raise UserError(f"{out}: receipts are .json files below {FOLDER}, such as {FOLDER}/dsv41-r1/engine_test.json")
    if path.exists():
        raise UserError(f"{out}: exists already; a receipt is written once: remove it, or choose another name")
    return path


def take(
    root: Path,
    subject: Subject,
    command: Sequence[str],
    *,
    show: Show,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
    places: Mapping[Path, str] | None = None,
) -> Receipt:
    """Runs `command` and returns its receipt, also where it failed (`exit`).

    Args:
        root: the source tree.
        subject: the image that it is about.
        command: program and arguments.
        show: is handed the output as it comes.
        folder: to run in; default: the current one.
        environment: added to ours.
        places: further paths to take out of the output, and what to write for them.

    Raises UserError where the program cannot be started.
    """
    begun = start(Git(folder or root))
    status, output = _run(command, folder, environment or {}, show)
    return finish(root, begun, subject, command, status, output, places)


def start(git: Git) -> Start:
    """What is to be noted before a command runs."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return Start(git.head(), tuple(git.dirty()), now.isoformat().replace("+00:00", "Z"))


def finish(
    root: Path,
    begun: Start,
    subject: Subject,
    command: Sequence[str],
    status: int,
    output: str,
    places: Mapping[Path, str] | None = None,
) -> Receipt:
    """The receipt of a command that has run, on this machine.

    Args:
        root: the source tree.
        begun: what start() noted.
        subject: the image that it is about.
        command: program and arguments.
        status: its exit status.
        output: what it said.
        places: further paths to take out of command and output, and what to write for them.
    """
    replaced = machine.places(root, places)
    return Receipt(
        schema=SCHEMA,
        subject=subject,
        hardware=model.decode(Hardware, machine.hardware()),
        software=Software(**machine.software()),
        command=tuple(machine.clean(part, replaced) for part in command),
        exit=status,
        output=machine.clean(output, replaced),
        commit=begun.commit,
        modified=begun.modified,
        date=begun.date,
    )


def write(path: Path, receipt: Receipt) -> None:
    """Writes a receipt, whole or not at all."""
    plain: dict[str, Any] = model.encode(receipt)
    plain["subject"] = {"tag": receipt.subject.tag, "digest": receipt.subject.digest}
    atomic.write(path, (json.dumps(plain, indent=1, ensure_ascii=False) + "\n").encode())


def _run(
    command: Sequence[str], folder: Path | None, environment: dict[str, str], show: Show
) -> tuple[int, str]:
    sys.stdout.flush()
    try:
        running = subprocess.Popen(
            list(command),
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be run: {error.strerror}") from None
    kept, left_out = bytearray(), 0
    with running:
        assert running.stdout
        while chunk := running.stdout.read(_CHUNK):
            show(chunk)
            kept += chunk
            if len(kept) > 2 * _KEPT:
                left_out += len(kept) - _KEPT
                del kept[:-_KEPT]
    if len(kept) > _KEPT:
        left_out += len(kept) - _KEPT
        del kept[:-_KEPT]
    start = f"[{left_out} bytes before this are left out]\n" if left_out else ""
    status = running.returncode
    return (status if status >= 0 else 128 - status), start + kept.decode(errors="replace")
