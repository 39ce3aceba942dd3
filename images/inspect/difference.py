"""How two manifests differ, group by group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from images.manifest import model

_SCALARS = ("base", "site")


@dataclass(frozen=True)
class Changed:
    """A thing of one name that is not the same: field to (value before, value after), as plain data."""

    name: str
    fields: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Group:
    """One kind of thing: what the second has more, what it lacks, and what it has otherwise; as plain data by name."""

    added: dict[str, dict[str, Any]]
    removed: dict[str, dict[str, Any]]
    changed: tuple[Changed, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "added": list(self.added.values()),
            "removed": list(self.removed.values()),
            "changed": [
                {"name": each.name, "fields": {name: {"from": a, "to": b} for name, (a, b) in each.fields.items()}}
                for each in self.changed
            ],
        }


@dataclass(frozen=True)
class Difference:
    """From manifest to manifest. `scalars` are base and site where they differ; tag and commit are not compared."""

    scalars: dict[str, tuple[Any, Any]]
    groups: dict[str, Group]

    def __bool__(self) -> bool:
        return bool(self.scalars) or any(self.groups.values())

    def document(self) -> dict[str, Any]:
        """For JSON."""
        scalars = {
            name: {"from": self.scalars[name][0], "to": self.scalars[name][1]} if name in self.scalars else None
            for name in _SCALARS
        }
        return {**scalars, **{name: group.document() for name, group in self.groups.items()}}


def compare(before: model.Manifest, after: model.Manifest) -> Difference:
    """What is in `after` and not in `before`, and the reverse."""
    scalars = {}
    for name in _SCALARS:
        pair = model.encode(getattr(before, name)), model.encode(getattr(after, name))
        if pair[0] != pair[1]:
            scalars[name] = pair
    return Difference(
        scalars,
        {
            "steps": _group(before.steps, after.steps, lambda step: f"{step.number} {step.name}"),
            "switches": _group(before.switches, after.switches, lambda switch: switch.name),
            "patches": _group(before.patches, after.patches, lambda patch: patch.name),
            "pins": _group(before.pins, after.pins, lambda pin: f"{pin.kind} {pin.name}"),
            "overlays": _group(before.overlays, after.overlays, lambda overlay: overlay.project),
            "files": _group(before.files, after.files, lambda file: file.path),
        },
    )


def _group(before: Sequence[Any], after: Sequence[Any], name: Callable[[Any], str]) -> Group:
    old = {name(each): model.encode(each) for each in before}
    new = {name(each): model.encode(each) for each in after}
    changed = []
    for key in (key for key in old if key in new and old[key] != new[key]):
        fields = {
            field: (old[key].get(field), new[key].get(field))
            for field in dict.fromkeys((*old[key], *new[key]))
            if old[key].get(field) != new[key].get(field)
        }
        changed.append(Changed(key, fields))
    return Group(
        {key: value for key, value in new.items() if key not in old},
        {key: value for key, value in old.items() if key not in new},
        tuple(changed),
    )
