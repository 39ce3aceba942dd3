"""Generations that are not served yet: of a request, of an earlier one, of the running one with another switch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from images.engine.interface import EngineImage
from serving.control.session import Session
from serving.generations import generation
from serving.generations.generation import Generation, Image, What
from serving.launch import image, key, settings
from serving.launch.key import Key
from serving.launch.plan import plan
from serving.launch.request import Request
from serving.launch.settings import DEFAULT, Settings
from serving.profiles.model import Profile
from serving.startup import first_start
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Candidate:
    """A generation, and its settings by today's profile; None where that cannot say it any more."""

    generation: Generation
    settings: Settings | None


def of_request(session: Session, asked: Request, found: EngineImage) -> Candidate:
    """What a person asks for. Raises UserError."""
    at = key.find(asked.settings, session.environment)
    of = Image.of(asked.image, found, _digest(session, asked.image, found))
    return Candidate(_planned(session, asked.settings, of, "up", None, at, asked.image_source), asked.settings)


def of_earlier(session: Session, earlier: Generation, what: What) -> Candidate:
    """An earlier generation again, to the letter, as a new one."""
    made = replace(
        earlier,
        number=session.server.next_number,
        at=generation.now(),
        who=generation.who(),
        what=what,
        of=earlier.number,
        outcome="staged",
        why=None,
        log=None,
    )
    try:
        again: Settings | None = settings_of(session.profile(earlier.launch.line), earlier)
    except UserError as error:
        session.out.note(f"generation {earlier.number} is not what today's profile can say ({error}): no preflight")
        again = None
    return Candidate(made, again)


def of_switches(session: Session, current: Generation, given: Sequence[str]) -> Candidate:
    """The running generation with switches set as `given` (SWITCH=VALUE). Raises UserError."""
    profile = session.profile(current.launch.line)
    names = [pair.partition("=")[0] for pair in given]
    switches = [knob.name for knob in profile.switches]
    for name in names:
        if name not in switches:
            raise UserError(f"{name!r} is no switch of {profile.line}; there are {', '.join(switches)}")
    found = settings_of(profile, current, given)
    image.check_switches(found, current.image.asked, session.known)
    source = f"of generation {current.number}"
    made = _planned(session, found, current.image, "switch", current.number, current.launch.key, source)
    return Candidate(made, found)


def settings_of(profile: Profile, recorded: Generation, given: Sequence[str] = ()) -> Settings:
    """The settings of a generation, with what is `given` instead (NAME=VALUE).

    What a person set then is set again; so is a default that is another in today's profile. The environment has no
    say. Raises UserError where the profile does not take it any more.
    """
    defaults = {name: settings.Setting(knob, knob.default, DEFAULT).text for name, knob in profile.knobs.items()}
    moved = [
        knob
        for knob in recorded.knobs
        if knob.source == DEFAULT and knob.value and defaults.get(knob.name, knob.value) != knob.value
    ]
    instead = {pair.partition("=")[0] for pair in given}
    again = [f"{knob.name}={knob.value}" for knob in (*recorded.explicit, *moved) if knob.name not in instead]
    return settings.resolve(profile, [*again, *given], {})


def _digest(session: Session, asked: str, found: EngineImage) -> str | None:
    """The digest of a release's manifest by the CHANGELOG; None for an image that is no release's."""
    tag = image.released(asked, session.known)
    entry = session.known.entry(tag) if tag else None
    return entry.digest if entry and found.image_id in (entry.image_id, entry.digest) else None


def _planned(
    session: Session, chosen: Settings, found: Image, what: What, of: int | None, at: Key | None, image_source: str
) -> Generation:
    tuning = first_start.tuning(chosen)
    return Generation(
        number=session.server.next_number,
        at=generation.now(),
        who=generation.who(),
        what=what,
        of=of,
        profile=chosen.profile.sha256,
        image=found,
        knobs=generation.knobs(chosen, found.asked, image_source),
        launch=plan(chosen, found.asked, at, "published").launch,
        tuning=plan(tuning, found.asked, at, "published").launch if tuning else None,
    )
