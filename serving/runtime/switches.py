"""Which steps are live, from the manifest's switches and the environment."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from images.manifest import model

_VALUE = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class StepState:
    """A step and whether it is live (None: its switch is set to nonsense).

    `value` is what the switch is set to; None where it is not set, or where there is none.
    """

    step: model.Step
    live: bool | None
    value: str | None


def states(manifest: model.Manifest, environment: Mapping[str, str]) -> tuple[StepState, ...]:
    """The state of each step: 0 turns it off, another number on; not set, the switch's default counts."""
    result = []
    for step in manifest.steps:
        value = environment.get(step.switch) if step.switch is not None else None
        effective = step.default if value is None else value
        live = int(effective) != 0 if _VALUE.fullmatch(effective) else None
        result.append(StepState(step, live, value))
    return tuple(result)


def errors(states: tuple[StepState, ...]) -> tuple[str, ...]:
    """One line for each switch that is set to something that is no number: the server would not start."""
    return tuple(
        f"{state.step.switch}={state.value!r}: expected 0 (upstream's path) or 1 (step {state.step.name})"
        for state in states
        if state.live is None
    )


def warnings(manifest: model.Manifest, environment: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each variable that has the switches' prefix and is none of them."""
    known = sorted(switch.name for switch in manifest.switches)
    return tuple(
        f"{name} is no switch of this image and does nothing: {_hint(name, known)}"
        for name in sorted(environment)
        if name.upper().startswith(model.SWITCH_PREFIX) and name not in known
    )


def _hint(name: str, known: list[str]) -> str:
    # Without the prefix, which all share and which would make any two alike.
    rest = {switch.removeprefix(model.SWITCH_PREFIX): switch for switch in known}
    near = difflib.get_close_matches(name.upper().removeprefix(model.SWITCH_PREFIX), list(rest), 3)
    if near:
        return f"did you mean {' or '.join(rest[each] for each in near)}?"
    return f"it has {', '.join(known) or 'none'}"
