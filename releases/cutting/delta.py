"""What one image has that the one before it had not: steps and pins."""

from dataclasses import dataclass
from typing import Any

from images.manifest import model


@dataclass(frozen=True)
class StepChange:
    """A step that both images have; `what` differs, in words ("patch x.patch", "default 0 -> 1")."""

    step: model.Step
    what: tuple[str, ...]


@dataclass(frozen=True)
class PinChange:
    """A pin that differs; `old` and `new` are versions, None where there is none."""

    kind: model.PinKind
    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.name} {self.new} (new)"
        if self.new is None:
            return f"{self.name} {self.old} (gone)"
        return f"{self.name} {self.old} -> {self.new}" + (" (another file)" if self.old == self.new else "")


@dataclass(frozen=True)
class Delta:
    """Steps by number, pins by kind and name."""

    added: tuple[model.Step, ...]
    retired: tuple[model.Step, ...]
    changed: tuple[StepChange, ...]
    pins: tuple[PinChange, ...]


def between(old: model.Manifest | None, new: model.Manifest) -> Delta:
    """What `new` has that `old` has not; against nothing, where there is no `old`, all steps are new."""
    before = {step.number: step for step in old.steps} if old else {}
    after = {step.number: step for step in new.steps}
    changed = []
    for number in sorted(before.keys() & after.keys()):
        assert old is not None
        what = _step(old, before[number], new, after[number])
        if what:
            changed.append(StepChange(after[number], what))
    return Delta(
        tuple(after[number] for number in sorted(after.keys() - before.keys())),
        tuple(before[number] for number in sorted(before.keys() - after.keys())),
        tuple(changed),
        tuple(_pins(old, new)) if old else (),
    )


def _step(old: model.Manifest, one: model.Step, new: model.Manifest, other: model.Step) -> tuple[str, ...]:
    what = [
        f"{key} {_shown(getattr(one, key))} -> {_shown(getattr(other, key))}"
        for key in ("name", "switch", "default", "numerics", "kernels", "patches")
        if getattr(one, key) != getattr(other, key)
    ]
    before = {patch.name: patch.sha256 for patch in old.patches}
    after = {patch.name: patch.sha256 for patch in new.patches}
    kept = [name for name in other.patches if name in one.patches]
    what += [f"patch {name}" for name in kept if before.get(name) != after.get(name)]
    families = [family for family in other.kernels if family in one.kernels]
    libraries = {family: [model.library_sha256(image, family) for image in (old, new)] for family in families}
    what += [f"kernels {family}" for family, (first, second) in libraries.items() if first != second]
    on = [{switch.name: switch.on for switch in manifest.switches} for manifest in (old, new)]
    if one.switch == other.switch and one.switch and on[0].get(one.switch) != on[1].get(one.switch):
        what.append(f"{one.switch} {on[0].get(one.switch)} -> {on[1].get(one.switch)}")
    return tuple(what)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return str(value or "none")


def _pins(old: model.Manifest, new: model.Manifest) -> list[PinChange]:
    before = {(pin.kind, pin.name): pin for pin in old.pins}
    after = {(pin.kind, pin.name): pin for pin in new.pins}
    changes = []
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one != other:
            changes.append(PinChange(*key, one.version if one else None, other.version if other else None))
    return changes
