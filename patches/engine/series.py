"""The series file and the patches that it orders."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from patches.engine.diff import FileDiff, body_start, named_paths, parse_diff
from patches.engine.errors import PatchError
from patches.engine.header import Header, parse_header
from patches.engine.text import split_lines

SERIES = "series"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\.patch")
_LEFT_OUT = "# left out: "


@dataclass(frozen=True)
class Patch:
    """One patch as read; `paths` are the files it names. `faults` is empty, and `header` set, if it is valid."""

    name: str
    sha256: str
    header: Header | None
    diffs: tuple[FileDiff, ...]
    paths: tuple[str, ...]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """The patches in order, and what is wrong with the series itself, each one line."""

    patches: tuple[Patch, ...]
    problems: tuple[str, ...]


def parse_patch(name: str, data: bytes) -> Patch:
    """Read one patch, collecting faults of header and diff instead of stopping at the first."""
    lines = split_lines(data)
    head = lines[: body_start(lines)]
    header, faults = parse_header(_decode(head))
    diffs: tuple[FileDiff, ...] = ()
    try:
        diffs = tuple(parse_diff(data))
    except PatchError as error:
        faults.append(str(error))
    paths = tuple(diff.path for diff in diffs) or tuple(named_paths(lines))
    return Patch(name, hashlib.sha256(data).hexdigest(), header, diffs, paths, tuple(faults))


def name_fault(name: str) -> str | None:
    """Why `name` cannot be a patch's file name, or None."""
    if _NAME.fullmatch(name):
        return None
    return (
        f"{name!r} is no patch name: lower case words joined by '-' and '.patch', "
        "no number in front; the order is the series file's"
    )


def with_name(text: bytes, name: str) -> bytes:
    """The series file `text` with the patch `name` listed: in the line that says it was left out, else last."""
    lines = split_lines(text)
    mark = f"{_LEFT_OUT}{name} ".encode()
    if text and not text.endswith(b"\n"):
        lines[-1] += b"\n"
    listed = name.encode() + b"\n"
    at = next((index for index, line in enumerate(lines) if line.startswith(mark)), len(lines))
    return b"".join([*lines[:at], listed, *lines[at + 1 :]])


def without_names(text: bytes, left_out: dict[str, str]) -> bytes:
    """The series file `text` with the patches `left_out` (name to reason) as comments that say so."""
    lines = split_lines(text)
    for index, line in enumerate(lines):
        name = line.split(b"#")[0].strip().decode("utf-8", "backslashreplace")
        if name in left_out:
            lines[index] = f"{_LEFT_OUT}{name} ({left_out[name]})\n".encode()
    return b"".join(lines)


def series_names(path: Path) -> tuple[list[str], list[str]]:
    """The names in a series file, each once, in order; and what is wrong with the list.

    Raises PatchError if there is no such file.
    """
    try:
        text = path.read_bytes().decode("utf-8", "backslashreplace")
    except OSError as error:
        raise PatchError(f"{path}: cannot read the series file ({error.strerror})") from None
    names: list[str] = []
    problems: list[str] = []
    first: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name = line.split("#")[0].strip()
        if not name:
            continue
        if name in first:
            problems.append(f"{SERIES}:{number}: {name} is listed twice, first on line {first[name]}: keep one line")
            continue
        first[name] = number
        if fault := name_fault(name):
            problems.append(f"{SERIES}:{number}: {fault}")
            continue
        names.append(name)
    if not first:
        problems.append(f"{SERIES}: lists no patch: write one file name a line")
    return names, problems


def load_series(folder: Path) -> Series:
    """Read a patch folder: the series file and every patch, in order. Raises PatchError without a series."""
    names, problems = series_names(folder / SERIES)
    present = {path.name for path in folder.glob("*.patch")}
    patches: list[Patch] = []
    for name in names:
        if name in present:
            patches.append(parse_patch(name, (folder / name).read_bytes()))
        else:
            problems.append(f"{name}: listed in {SERIES}, but there is no such file: add it or drop the line")
    for name in sorted(present - set(names)):
        problems.append(f"{name}: in the folder, but not listed in {SERIES}: list it or delete it")
    return Series(tuple(patches), tuple(problems + _switch_problems(patches)))


def _switch_problems(patches: list[Patch]) -> list[str]:
    """Each step has one switch, and some patch of the step reads it."""
    switches: dict[str, dict[str | None, str]] = {}
    added: dict[str, bytes] = {}
    for patch in patches:
        if patch.header is not None:
            switches.setdefault(patch.header.step, {}).setdefault(patch.header.switch, patch.name)
            new = [
                line for diff in patch.diffs for hunk in diff.hunks for line in hunk.after if line not in hunk.before
            ]
            added[patch.header.step] = added.get(patch.header.step, b"") + b"".join(new)
    problems: list[str] = []
    for step, named in switches.items():
        if len(named) > 1:
            listed = ", ".join(f"{switch or 'none'} ({name})" for switch, name in named.items())
            problems.append(f"step {step}: its patches name different switches: {listed}: a step has one")
        for switch, name in named.items():
            if switch and not re.search(rb"\b" + switch.encode() + rb"\b", added[step]):
                problems.append(f"{name}: the header names the switch {switch}, but no added line of the step reads it")
    return problems


def _decode(lines: list[bytes]) -> list[str]:
    return [line.decode("utf-8", "backslashreplace").removesuffix("\n") for line in lines]
