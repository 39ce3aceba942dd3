"""Which image is served: the one that was asked for, this host's current release, or the newest; and its switches."""

from images.manifest import model
from releases.known import Known
from releases.rollback.state import State
from releases.tag import Tag
from serving.launch.settings import Settings
from tools.cli.errors import UserError


def choose(settings: Settings, known: Known) -> tuple[str, str]:
    """The image, and in words where it comes from.

    Raises UserError where none was asked for and no release of the line is known, and for a release of another line.
    """
    asked, line = settings.of("image"), settings.profile.line
    if asked.value is not None:
        tag = _tag(str(asked.value))
        if tag and tag.line != line:
            raise UserError(f"{asked.knob.name}={asked.text} ({asked.source}): is of the line {tag.line}, not {line}")
        return asked.text, asked.source
    if current := State.read(line).current:
        return current.tag, "current on this host"
    if newest := known.changelog.newest(line):
        return str(newest.tag), "newest release"
    raise UserError(f"{line} has no release: set {asked.knob.name} to an image, for example {line}:vllm0.33.0-r1")


def is_released(image: str, known: Known) -> bool:
    """Whether an image's name is that of a known release."""
    return released(image, known) is not None


def released(image: str, known: Known) -> Tag | None:
    """The known release that an image's name is of, wherever its registry is; None where it is of none."""
    tag = _tag(image)
    return tag if tag is not None and tag in {entry.tag for entry in known.changelog.entries} else None


def check_switches(settings: Settings, image: str, known: Known) -> None:
    """Refuses a switch that is not at its default where `image` is a known release without it.

    Of any other image nothing is known here; its entry point names the switches that it does not have.
    """
    tag = released(image, known)
    if tag is None:
        return
    manifest = known.record(tag).moet
    there = {switch.name for switch in manifest.switches}
    if any(step.kernels for step in manifest.steps):
        there.add(model.SELFTEST)
    for knob in settings.profile.switches:
        setting = settings.by_name[knob.name]
        if setting.value != knob.default and knob.name not in there:
            what = "has no kernels to test" if knob.name == model.SELFTEST else "has no step with this switch"
            raise UserError(f"{knob.name}={setting.text} ({setting.source}): {image} {what}: leave it, or set IMAGE")


def _tag(image: str) -> Tag | None:
    """The release that an image's name states, wherever its registry is; None where it states none."""
    try:
        return Tag.parse(image.rpartition("/")[2].partition("@")[0])
    except UserError:
        return None
