"""Patch headers: fields in the manner of DEP-3, each checked, none optional."""

import datetime
import re
from dataclasses import dataclass

REASONS = ("upstreaming", "cannot be upstreamed", "incompatible")
FIELDS = ("Description", "Reason", "Step", "Switch", "Forwarded", "Drop-When", "Last-Update")

_FIELD = re.compile(r"([A-Za-z][A-Za-z-]*):(?: (.*))?$")
_STEP = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*$")
_SWITCH = re.compile(r"VLLM_MOET_[A-Z0-9]+(_[A-Z0-9]+)*$")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}$")


@dataclass(frozen=True)
class Header:
    """What a patch says of itself.

    `switch` is None where the header says `none`: the patch changes no behaviour. `last_update` is
    YYYY-MM-DD.
    """

    description: str
    reason: str
    step: str
    switch: str | None
    forwarded: str
    drop_when: str
    last_update: str


def parse_header(lines: list[str]) -> tuple[Header | None, list[str]]:
    """Parse the lines before the diff.

    Returns the header, or None, and every fault found, each one line. A line that begins with a space
    continues the field above it; a continuation of "." is an empty line, as in Debian's control files.
    """
    values, faults = _fields(lines)
    for name in FIELDS:
        if name not in values:
            faults.append(f"field {name} is missing: the header needs {', '.join(FIELDS)}")
    for name, value in values.items():
        fault = field_fault(name, value) if name in FIELDS else None
        if fault:
            faults.append(fault)
    if values.get("Reason") == "upstreaming" and values.get("Forwarded") == "not-needed":
        faults.append("Forwarded: not-needed contradicts Reason: upstreaming: say no, or where it was sent")
    if faults:
        return None, faults
    switch = values["Switch"]
    return (
        Header(
            description=values["Description"],
            reason=values["Reason"],
            step=values["Step"],
            switch=None if switch == "none" else switch,
            forwarded=values["Forwarded"],
            drop_when=values["Drop-When"],
            last_update=values["Last-Update"],
        ),
        [],
    )


def template(step: str, today: datetime.date, switch: str | None = None) -> str:
    """A header for a new patch of `step`, to be filled in; it does not pass `parse_header` until it is.

    `switch` is a variable's name or "none"; by default it is named after the step.
    """
    hints = {
        "Description": "TODO: one line; more on lines that begin with a space",
        "Reason": "TODO: " + " | ".join(REASONS),
        "Step": step,
        "Switch": switch or "VLLM_MOET_" + step.upper().replace("-", "_"),
        "Forwarded": "no",
        "Drop-When": "TODO",
        "Last-Update": today.isoformat(),
    }
    return "".join(f"{name}: {hints[name]}\n" for name in FIELDS)


def field_fault(name: str, value: str) -> str | None:
    """What is wrong with the value of one field, in one line, or None."""
    if not value or value.startswith("TODO"):
        return f"field {name} is empty: fill it in"
    if name not in ("Description", "Drop-When") and "\n" in value:
        return f"field {name} must be one line"
    if name == "Reason" and value not in REASONS:
        return f"Reason: {value!r} is not one of: {' | '.join(REASONS)}"
    if name == "Step" and not _STEP.match(value):
        return f"Step: {value!r} is no step name: lower case words joined by '-', as in the image line"
    if name == "Switch" and value != "none" and not _SWITCH.match(value):
        return f"Switch: {value!r} is neither VLLM_MOET_<NAME> nor none"
    if name == "Forwarded" and " " in value:
        return f"Forwarded: {value!r} must be no, not-needed, or where it was sent, without a space"
    if name == "Last-Update" and not _is_date(value):
        return f"Last-Update: {value!r} is no date: write YYYY-MM-DD"
    return None


def _fields(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    values: dict[str, list[str]] = {}
    faults: list[str] = []
    current: list[str] | None = None
    for number, line in enumerate(lines, 1):
        field = _FIELD.match(line)
        if line.startswith(" ") and current is not None:
            current.append("" if line.strip() == "." else line.strip())
        elif field:
            name, first = field.group(1), field.group(2) or ""
            current = [first.strip()]
            if name not in FIELDS:
                faults.append(f"line {number}: unknown field {name!r}: the fields are {', '.join(FIELDS)}")
            elif name in values:
                faults.append(f"line {number}: field {name} stands twice: keep one")
            else:
                values[name] = current
        elif line.strip():
            faults.append(f"line {number}: expected 'Field: value' or a line that begins with a space: {line!r}")
        else:
            current = None
    return {name: "\n".join(parts).strip() for name, parts in values.items()}, faults


def _is_date(value: str) -> bool:
    try:
        return bool(_DATE.match(value)) and bool(datetime.date.fromisoformat(value))
    except ValueError:
        return False
