"""A new patch begun: its header made from what is known, its files taken out."""

import datetime
from pathlib import Path

from patches.engine import edit
from patches.engine.diff import body_start
from patches.engine.errors import PatchError
from patches.engine.header import field_fault, template
from patches.engine.series import name_fault, parse_patch
from patches.engine.text import split_lines
from patches.engine.wheel import Wheel
from patches.tools import wheels
from patches.tools.place import Place


def patch_name(name: str) -> str:
    """The file name of a patch that a person named with or without .patch. Raises PatchError if it can be none."""
    full = name if name.endswith(".patch") else f"{name}.patch"
    if fault := name_fault(full):
        raise PatchError(fault)
    return full


def work_folder(place: Place, name: str) -> Path:
    """Where a patch's files are taken out to, unless a person says otherwise."""
    return wheels.cache() / "work" / place.name / name.removesuffix(".patch")


def begin(
    place: Place, wheel: Wheel, name: str, files: list[str], step: str | None, switch: str | None, target: Path
) -> list[str]:
    """Take `files` out into `target`, with a header to fill in, for the new patch `name`.

    `step` is named after the patch by default; `switch` is that of the step where a line has it already, else
    named after the step, or "none". Returns a line a file. Raises PatchError, before anything is written.
    """
    step = step or name.removesuffix(".patch")
    stated = {known.switch or "none" for known in place.steps if known.name == step}
    if switch is None and len(stated) == 1:
        (switch,) = stated
    header = template(step, datetime.date.today(), switch)
    for field, value in (("Step", step), ("Switch", switch)):
        if value is not None and (fault := field_fault(field, value)):
            raise PatchError(fault)
    if stated and switch not in stated:
        raise PatchError(f"step {step} has the switch {', '.join(sorted(stated))}: a step has one")
    return edit.start(wheel, place.folder, name, header, files, target)


def begin_like(place: Place, wheel: Wheel, name: str, like: Path, target: Path) -> list[str]:
    """Take the files of the patch file `like` out into `target`, with what of it applies, and its header.

    Returns a line a file, and one a hunk to be done by hand. Raises PatchError.
    """
    try:
        data = like.read_bytes()
    except OSError as error:
        raise PatchError(f"{like}: cannot be read ({error.strerror})") from None
    patch = parse_patch(like.name, data)
    if not patch.diffs:
        raise PatchError(f"{like}: {'; '.join(patch.faults) or 'holds no diff'}")
    lines = split_lines(data)
    header = b"".join(lines[: body_start(lines)]).rstrip(b"\n") + b"\n"
    return edit.start_like(wheel, place.folder, name, patch, header.decode("utf-8"), target)
