"""What each knob is set to, and who said so: --set, the environment, another knob, or the profile's default."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from images.manifest import model as manifest
from serving.profiles import values
from serving.profiles.model import Knob, Profile, Role, Value
from tools.cli.errors import UserError

DEFAULT = "default"
ENVIRONMENT = "environment"
SET = "--set"


@dataclass(frozen=True)
class Setting:
    """A knob's value. `source` is DEFAULT, ENVIRONMENT, SET, or NAME=VALUE of the knob that asks for it."""

    knob: Knob
    value: Value | None
    source: str

    @property
    def explicit(self) -> bool:
        """Whether a person set this very knob."""
        return self.source in (ENVIRONMENT, SET)

    @property
    def on(self) -> bool:
        """Whether the value is not the one at which nothing is passed."""
        return not self.knob.is_off(self.value)

    @property
    def text(self) -> str:
        """The value as a person writes it."""
        return values.show_of(self.knob, self.value)


@dataclass(frozen=True)
class Settings:
    """The settings of all knobs of a profile, by name."""

    profile: Profile
    by_name: Mapping[str, Setting]

    def of(self, role: Role) -> Setting:
        """The setting of the knob that plays a part."""
        return self.by_name[self.profile.by_role(role).name]

    def values(self) -> dict[str, Value | None]:
        """Each knob's value."""
        return {name: setting.value for name, setting in self.by_name.items()}


def resolve(profile: Profile, given: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settles every knob.

    Args:
        profile: whose knobs.
        given: NAME=VALUE, as --set has them; they win over the environment.
        environment: variables; an empty one counts as not set.

    Raises UserError for an unknown knob, a value that it does not take, and settings that contradict each other.
    """
    found = {name: Setting(knob, knob.default, DEFAULT) for name, knob in profile.knobs.items()}
    for name in profile.knobs:
        if text := environment.get(name):
            found[name] = _read(profile.knobs[name], text, ENVIRONMENT)
    for name, text in _pairs(profile, given).items():
        found[name] = _read(profile.knobs[name], text, SET)
    _preset(found)
    _imply(found)
    _need(found)
    return Settings(profile, found)


def unknown_switches(profile: Profile, environment: Mapping[str, str]) -> list[str]:
    """One line for each variable that has the switches' prefix and is no knob: it does nothing."""
    known = [knob.name for knob in profile.switches]
    wrong = [name for name in sorted(environment) if name.startswith(manifest.SWITCH_PREFIX) and name not in known]
    words = f"is no switch of {profile.line} and is not passed on"
    return [f"{name} (environment) {words}{_hint(name, known)}" for name in wrong]


def _pairs(profile: Profile, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if name not in profile.knobs:
            hint, advice = _hint(name, profile.knobs), f"`moet serve knobs {profile.line}` lists them"
            raise UserError(f"--set: {name!r} is no knob of {profile.line}{hint}; {advice}")
        if not equals:
            raise UserError(f"--set {name}: expected {name}=VALUE")
        if name in found:
            raise UserError(f"--set {name}: is set twice")
        found[name] = text
    return found


def _hint(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    upper = name.upper().replace("-", "_")
    # Without the prefix, which all switches share and which would make any two alike.
    short = {one.removeprefix(manifest.SWITCH_PREFIX): one for one in known}
    near = difflib.get_close_matches(upper.removeprefix(manifest.SWITCH_PREFIX), list(short), 1)
    return f": did you mean {short[near[0]]}?" if near else ""


def _read(knob: Knob, text: str, source: str) -> Setting:
    try:
        return Setting(knob, values.parse(knob, text), source)
    except values.ValueProblemError as error:
        raise UserError(f"{knob.name}={text!r} ({source}): {error}") from None


def _preset(found: dict[str, Setting]) -> None:
    for setting in list(found.values()):
        for other, text in setting.knob.presets.items() if setting.on else ():
            if not found[other].explicit:
                source = f"{setting.knob.name}={setting.text}"
                found[other] = Setting(found[other].knob, values.parse(found[other].knob, text), source)


def _imply(found: dict[str, Setting]) -> None:
    for setting in list(found.values()):
        for other, text in setting.knob.implies.get(setting.text, {}).items():
            before, value = found[other], values.parse(found[other].knob, text)
            source = f"{setting.knob.name}={setting.text}"
            if before.value == value:
                continue
            if before.explicit:
                raise UserError(
                    f"{source} ({setting.source}) needs {other}={text}, which is set to {before.text} ({before.source})"
                )
            found[other] = replace(before, value=value, source=source)


def _need(found: Mapping[str, Setting]) -> None:
    for setting in found.values():
        for other in setting.knob.needs:
            if setting.explicit and setting.on and not found[other].on:
                state = f"is {found[other].text}" if found[other].text else "is not set"
                name = f"{setting.knob.name} ({setting.source})"
                raise UserError(f"{name} needs {other}, which {state}: set both or none")
