"""Changing several files of the tree as one: all of it is written down first, and then done, again if need be.

The journal is one file in the git folder, with the complete content of every file to be. Whoever finds it there
finishes what it says; a file that is neither as it was nor as it is to be stops that.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cli.errors import UserError
from tools.files import atomic

SCHEMA = "moet.journal.v1"


@dataclass(frozen=True)
class Plan:
    """What is to be done: `about` says it for people; paths from the root to (SHA-256 before or None, new content)."""

    about: str
    facts: dict[str, str]
    files: dict[str, tuple[str | None, bytes]]


def plan(root: Path, about: str, facts: dict[str, str], files: Mapping[str, bytes]) -> Plan:
    """Plans to write `files`, over what is at `root` now; `facts` are kept with it."""
    return Plan(about, facts, {path: (_hash(root / path), data) for path, data in files.items()})


def begin(journal: Path, made: Plan) -> None:
    """Writes the journal; from here on the plan will be done."""
    document = {
        "schema": SCHEMA,
        "about": made.about,
        "facts": made.facts,
        "files": [
            {"path": path, "before": before, "content": base64.b64encode(data).decode()}
            for path, (before, data) in made.files.items()
        ],
    }
    atomic.write(journal, json.dumps(document, indent=1).encode())


def pending(journal: Path) -> Plan | None:
    """The plan that was begun and not ended, None where there is none.

    Raises UserError on a journal that is not ours.
    """
    try:
        document: dict[str, Any] = json.loads(journal.read_bytes())
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        files = {
            str(file["path"]): (file["before"], base64.b64decode(file["content"], validate=True))
            for file in document["files"]
        }
        return Plan(document["about"], document["facts"], files)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{journal}: is no journal of this version of moet; look at it, then remove it") from None


def finish(journal: Path, root: Path) -> Plan | None:
    """Does what is left of a begun plan and removes the journal; returns the plan, None where there was none.

    Raises UserError, and changes nothing, where a file was changed by someone else since.
    """
    made = pending(journal)
    _sweep(journal)
    if made is None:
        return None
    todo = []
    for path, (before, data) in made.files.items():
        found = _hash(root / path)
        if found == hashlib.sha256(data).hexdigest():
            continue
        if found != before:
            raise UserError(
                f"{path}: was changed after {made.about} was begun and not ended: git checkout -- {path} and run this"
                f" again, or give it up: remove {journal} and put the tree back with git checkout and git clean"
            )
        todo.append((path, data))
    for path, data in todo:
        atomic.write(root / path, data)
    for path in made.files:
        _sweep(root / path)
    journal.unlink()
    atomic.sync_folder(journal.parent)
    return made


def _sweep(path: Path) -> None:
    """Removes what atomic.write left of a file when it was killed."""
    for draft in path.parent.glob(f".{path.name}.*.partial"):
        draft.unlink(missing_ok=True)


def _hash(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
