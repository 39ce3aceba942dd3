"""Which steps are live, from the manifest's switches and the environment, and whether a self-test is asked for."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from images.manifest import model


@dataclass(frozen=True)
class StepState:
    """A step and whether it is live (None: its switch is set to a value that it does not take).

    `value` is what the switch is set to; None where it is not set, or where there is none.
    """

    step: model.Step
    live: bool | None
    value: str | None


def states(manifest: model.Manifest, environment: Mapping[str, str]) -> tuple[StepState, ...]:
    """The state of each step: its switch's 0 turns it off, `on` turns it on; not set, the default counts."""
    on = {switch.name: switch.on for switch in manifest.switches}
    result = []
    for step in manifest.steps:
        value = environment.get(step.switch) if step.switch is not None else None
        if step.switch is None or value is None:
            live: bool | None = step.default != "0"
        else:
            live = {"0": False, on[step.switch]: True}.get(value)
        result.append(StepState(step, live, value))
    return tuple(result)


def errors(manifest: model.Manifest, environment: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each switch that is set to a value that it does not take; the self-test's variable likewise."""
    lines = [
        f"{switch.name}={environment[switch.name]!r}: expected 0 (upstream's path) or {switch.on} "
        f"(step {switch.step})"
        for switch in manifest.switches
        if environment.get(switch.name, "0") not in ("0", switch.on)
    ]
    asked = environment.get(model.SELFTEST, "0")
    if asked not in ("0", "1"):
        lines.append(f"{model.SELFTEST}={asked!r}: expected 0, or 1 to test the kernels before serving")
    return tuple(lines)


def selftest(environment: Mapping[str, str]) -> bool:
    """Whether the kernels are to be tested before the server starts."""
    return environment.get(model.SELFTEST) == "1"


def warnings(manifest: model.Manifest, environment: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each variable that has the switches' prefix and is none of them."""
    known = sorted(switch.name for switch in manifest.switches)
    return tuple(
        f"{name} is no switch of this image and does nothing: {_hint(name, known)}"
        for name in sorted(environment)
        if name.upper().startswith(model.SWITCH_PREFIX) and name not in (*known, model.SELFTEST)
    )


def _hint(name: str, known: list[str]) -> str:
    # Without the prefix, which all share and which would make any two alike.
    rest = {switch.removeprefix(model.SWITCH_PREFIX): switch for switch in known}
    near = difflib.get_close_matches(name.upper().removeprefix(model.SWITCH_PREFIX), list(rest), 3)
    if near:
        return f"did you mean {' or '.join(rest[each] for each in near)}?"
    return f"it has {', '.join(known) or 'none'}"
