"""What switches would do instead of another image."""

from dataclasses import dataclass

from images.manifest.model import Manifest, Pin, Step, library_sha256


@dataclass(frozen=True)
class Instead:
    """How near to the target's behaviour the current image comes by its switches.

    Attributes:
        settings: (switch, value, step) of what the target lacks and the current image does.
        off: (switch, step) of what the target lacks and the current image does only where the switch is set.
        beyond: in words, what no switch changes.
    """

    settings: tuple[tuple[str, str, str], ...]
    off: tuple[tuple[str, str], ...]
    beyond: tuple[str, ...]

    def lines(self, current: str) -> list[str]:
        """In words, for people; `current` is the tag of the image that would stay."""
        lines = []
        if self.settings:
            options = " ".join(f"-e {switch}={value}" for switch, value, _ in self.settings)
            names = ", ".join(step for _, _, step in self.settings)
            lines.append(f"a switch instead: {options} with {current} is without {names}")
        lines += [f"{step} is off in {current} unless {switch} is set" for switch, step in self.off]
        if self.beyond:
            lines.append(f"no switch changes: {'; '.join(self.beyond)}")
        return lines


def compare(current: Manifest, target: Manifest) -> Instead:
    """What of the way from `current` to `target` the switches of `current` can do."""
    kept = {step.number: step for step in target.steps}
    settings, off, beyond = [], [], []
    for step in current.steps:
        name = f"step {step.number} {step.name}"
        if step.number in kept:
            if _content(current, step) != _content(target, kept[step.number]):
                beyond.append(f"{name} is another in {target.tag}")
        elif step.switch is None:
            beyond.append(f"{name} has no switch")
        elif step.default == "0":
            off.append((step.switch, name))
        else:
            settings.append((step.switch, "0", name))
    had = {step.number for step in current.steps}
    new = (step for step in target.steps if step.number not in had)
    beyond += [f"step {step.number} {step.name} is only in {target.tag}" for step in new]
    if current.base != target.base:
        beyond.append(f"{current.base.name} {current.base.version} is {target.base.name} {target.base.version} there")
    if pins := _pins(current) ^ _pins(target):
        names = sorted({pin.name for pin in pins})
        beyond.append(f"{len(names)} pins ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})")
    return Instead(tuple(settings), tuple(off), tuple(beyond))


def _content(manifest: Manifest, step: Step) -> tuple[object, ...]:
    hashes = {patch.name: patch.sha256 for patch in manifest.patches}
    kernels = tuple((family, library_sha256(manifest, family)) for family in step.kernels)
    return step.name, step.switch, step.default, kernels, tuple(hashes.get(name) for name in step.patches)


def _pins(manifest: Manifest) -> set[Pin]:
    return set(manifest.pins)
