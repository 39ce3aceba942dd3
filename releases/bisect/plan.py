"""What a bisect is over: the steps that one image has and the other has not, and what else differs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from images.manifest import model
from releases.cutting import delta

OFF = "0"


@dataclass(frozen=True)
class Plan:
    """The search's ground.

    State k, from 0 to len(suspects), is the bad image with the first k suspects live and the rest off.

    Attributes:
        good: the good image's manifest.
        bad: the bad one's.
        suspects: steps of `bad` that `good` lacks or has otherwise, by number.
        outside: what else differs, a line each.
    """

    good: model.Manifest
    bad: model.Manifest
    suspects: tuple[model.Step, ...]
    outside: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of suspects, which is the bad end's state."""
        return len(self.suspects)

    @property
    def switchable_from(self) -> int:
        """The lowest state that switches alone bring about; `count` where the last suspect has none."""
        state = self.count
        while state and self.suspects[state - 1].switch:
            state -= 1
        return state

    def off(self, state: int) -> tuple[model.Step, ...]:
        """The steps that are off in a state."""
        return self.suspects[state:]

    def live(self, state: int) -> tuple[int, ...]:
        """The numbers of all steps of the bad image that are live in a state."""
        off = {step.number for step in self.off(state)}
        return tuple(step.number for step in self.bad.steps if step.number not in off)

    def switches(self, state: int, given: Mapping[str, str]) -> dict[str, str]:
        """The switches to set: off for steps that are, and those of the rest that `given`, an environment, sets."""
        known = {switch.name: given[switch.name] for switch in self.bad.switches if switch.name in given}
        return {**known, **{step.switch: OFF for step in self.off(state) if step.switch}}


def make(good: model.Manifest, bad: model.Manifest) -> Plan:
    """Returns the plan for two images of one line."""
    found = delta.between(good, bad)
    steps = {step.number: step for step in (*found.added, *(change.step for change in found.changed))}
    return Plan(good, bad, tuple(steps[number] for number in sorted(steps)), tuple(_outside(good, bad, found)))


def _outside(good: model.Manifest, bad: model.Manifest, found: delta.Delta) -> Sequence[str]:
    lines = []
    if good.base != bad.base:
        lines.append(f"base {good.base.name} {good.base.version} -> {bad.base.name} {bad.base.version}")
    lines += [f"step {step.number} {step.name} (gone)" for step in found.retired]
    lines += [f"{pin.kind} {pin}" for pin in found.pins]
    runtime = [{(file.path, file.sha256) for file in one.files if file.kind == "runtime"} for one in (good, bad)]
    return [*lines, *(f"file {path}" for path in sorted({path for path, _ in runtime[0] ^ runtime[1]}))]
