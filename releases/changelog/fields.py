"""The fields of a release in CHANGELOG.md, each a list item `- Name: value`, read and written."""

import re
from collections.abc import Callable
from typing import Any

from releases.tag import Tag
from tools.cli.errors import UserError

NONE = "none"
_DIGEST = re.compile(r"`(sha256:[0-9a-f]{64})`")
_COMMIT = re.compile(r"`([0-9a-f]{40})`")
_BASE = re.compile(r"(\S+) (\S+) \(([0-9a-f]{7,40})\)")
_STEP = re.compile(r"([1-9][0-9]*) ([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
_SWITCH = re.compile(r"`([A-Z][A-Z0-9_]*)=([^`\s]*)`")
_WITHOUT_IMAGE = ", or without another image "

Steps = tuple[tuple[int, str], ...]
Switches = tuple[tuple[str, str], ...]


def _digest(text: str) -> str:
    return _matched(_DIGEST, text, "`sha256:<64 hex digits>`")[1]


def _commit(text: str) -> str:
    return _matched(_COMMIT, text, "`<40 hex digits>`")[1]


def _base(text: str) -> str:
    found = _matched(_BASE, text, "NAME VERSION (COMMIT), for example vllm 0.33.0 (4ba787ec9)")
    return " ".join(found.groups())


def _steps(text: str) -> Steps:
    if text == NONE:
        return ()
    wanted = "none, or NUMBER NAME, NUMBER NAME ... by number, for example 1 reasoning-effort-tiers"
    found = [_matched(_STEP, part, wanted) for part in text.split(", ")]
    steps = tuple((int(one[1]), one[2]) for one in found)
    numbers = [number for number, _ in steps]
    if numbers != sorted(set(numbers)):
        raise UserError(f"{text!r}: expected each number once, in rising order")
    return steps


def _tag(text: str) -> Tag | None:
    return None if text == NONE else Tag.parse(text)


def _rollback(text: str) -> tuple[Tag | None, Switches]:
    target, without, switches = text.partition(_WITHOUT_IMAGE)
    if not without:
        return _tag(target), ()
    wanted = f"TAG{_WITHOUT_IMAGE}`SWITCH=0`, `SWITCH=0` ..."
    found = [_matched(_SWITCH, part, wanted) for part in switches.split(", ")]
    return _tag(target), tuple((one[1], one[2]) for one in found)


def _matched(pattern: re.Pattern[str], text: str, wanted: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if not found:
        raise UserError(f"{text!r}: expected {wanted}")
    return found


# In the order that they are written in; each reads its value or raises UserError.
READERS: dict[str, Callable[[str], Any]] = {
    "Digest": _digest,
    "Image ID": _digest,
    "Commit": _commit,
    "Base": _base,
    "Steps": _steps,
    "Follows": _tag,
    "Rollback": _rollback,
}


def write_steps(steps: Steps) -> str:
    """The value of Steps."""
    return ", ".join(f"{number} {name}" for number, name in steps) or NONE


def write_base(base: str) -> str:
    """The value of Base, from "NAME VERSION COMMIT"."""
    name, version, commit = base.split(" ")
    return f"{name} {version} ({commit})"


def write_rollback(tag: Tag | None, switches: Switches) -> str:
    """The value of Rollback."""
    written = ", ".join(f"`{name}={value}`" for name, value in switches)
    return str(tag or NONE) + (_WITHOUT_IMAGE + written if written else "")
