"""Differences in words, for people."""

from typing import Any

from images.inspect.difference import Changed, Difference, Group
from images.inspect.text import brief
from tools.cli.output import Output

_TITLES = {"files": "attested files"}


def show(
    out: Output, difference: Difference, before: str, after: str, more: str = "added", less: str = "removed"
) -> None:
    """Prints a difference; `before` and `after` head the columns of values, `more` and `less` say who lacks what."""
    for name, (old, new) in difference.scalars.items():
        out.line(f"{name}: {brief(_value(old), 200)} -> {brief(_value(new), 200)}")
    same = [_TITLES.get(name, name) for name, group in difference.groups.items() if not group]
    for name, group in difference.groups.items():
        if not group:
            continue
        title = _TITLES.get(name, name)
        gone = "retired" if (name, less) == ("steps", "removed") else less
        counts = ((group.added, more), (group.removed, gone), (group.changed, "changed"))
        numbers = ", ".join(f"{len(found)} {word}" for found, word in counts if found)
        rows = [[brief(cell, 200) for cell in row] for row in _rows(name, group, more, gone)]
        out.line()
        out.table(["", title, before, after], rows, f"{title}: {numbers}")
    if same:
        out.line(f"the same: {', '.join(same)}")


def _rows(name: str, group: Group, more: str, less: str) -> list[list[str]]:
    rows = [[more, key, "", _short(name, value)] for key, value in group.added.items()]
    rows += [[less, key, _short(name, value), ""] for key, value in group.removed.items()]
    for changed in group.changed:
        rows += _changed(name, changed)
    return rows


def _changed(name: str, changed: Changed) -> list[list[str]]:
    if name == "pins":
        pair = [_pin({field: value[side] for field, value in changed.fields.items()}) for side in (0, 1)]
        return [["changed", changed.name, *pair]]
    rows = []
    for number, (field, (old, new)) in enumerate(changed.fields.items()):
        first = ["changed", changed.name] if number == 0 else ["", ""]
        rows.append([*first, f"{field} {_value(old)}", f"{field} {_value(new)}"])
    return rows


def _short(name: str, value: dict[str, Any]) -> str:
    if name == "steps":
        kernels = f", kernels {'+'.join(value['kernels'])}" if value["kernels"] else ""
        return f"{value['switch'] or 'no switch'}, default {value['default']}, numerics {value['numerics']}{kernels}"
    if name == "switches":
        return f"default {value['default']}, on {value['on']}"
    if name == "pins":
        return _pin(value)
    return _value(value.get("sha256") or value.get("version"))


def _pin(value: dict[str, Any]) -> str:
    if value.get("version"):
        return str(value["version"])
    known = {field: value[field] for field in ("sha256", "commit", "file") if value.get(field)}
    return ", ".join(f"{field} {_value(text)}" for field, text in known.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(str(each) for each in value.values())
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    if value is None:
        return "none"
    text = str(value)
    return text[:12] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
