"""What a host served at one time, with all that is needed to serve it again. API keys are not part of it."""

import datetime
import os
import pwd
from dataclasses import dataclass
from typing import Any, Literal

from images.engine.interface import EngineImage
from images.manifest import model
from serving.generations import kv
from serving.launch.launch import Launch
from serving.launch.settings import ENVIRONMENT, SET, Settings

What = Literal["up", "rollback", "switch"]
# staged: not served yet; served: became ready once; failed: was given up before it did.
Outcome = Literal["staged", "served", "failed"]


@dataclass(frozen=True)
class Image:
    """An image, and what its labels say of it.

    Attributes:
        asked: the name that was asked for.
        image_id: sha256:<hex>, the engine's own, which containers are made of.
        digest: sha256:<hex> of its manifest, where the engine knows it.
        tag: LINE:BASE-rN.
        base: the upstream project: name, version, commit.
        steps: NUMBER:NAME with commas.
        manifest: hex hash of the manifest that it attests itself against.
    """

    asked: str
    image_id: str
    digest: str | None = None
    tag: str | None = None
    base: str | None = None
    steps: str | None = None
    manifest: str | None = None

    @classmethod
    def of(cls, asked: str, found: EngineImage, digest: str | None = None) -> "Image":
        """The image that an engine holds; `digest` is its manifest's, where something else than the engine knows it."""
        digests = [*([digest] if digest else []), *sorted(found.manifest_digests)]
        label = {name: found.labels.get(f"org.moet.{name}") for name in ("tag", "base", "steps", "manifest.sha256")}
        return cls(
            asked=asked,
            image_id=found.image_id,
            digest=digests[0] if digests else None,
            tag=label["tag"],
            base=label["base"],
            steps=label["steps"],
            manifest=label["manifest.sha256"],
        )

    @property
    def name(self) -> str:
        """What people call it: its own tag, else the name that was asked for."""
        return self.tag or self.asked


@dataclass(frozen=True)
class KnobValue:
    """What a knob was set to, as a person writes it, "" for nothing; `source` as in serving/launch/settings.py."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Generation:
    """A generation.

    Attributes:
        number: from 1, never used again.
        at: when it was made, UTC.
        who: user name and number of whoever made it.
        what: the command.
        of: the generation that it was made from; None where it was made from a profile alone.
        profile: sha256 in hex of the profile's file.
        image: what it is made of.
        knobs: every knob of the profile, in its order.
        launch: the server; `launch.image` is the name that was asked for.
        tuning: the server that fills empty caches first; None where the profile has no first start of its own.
        outcome: how far it came.
        why: why it failed.
        log: file with its last output, where it failed.
    """

    number: int
    at: str
    who: str
    what: What
    of: int | None
    profile: str
    image: Image
    knobs: tuple[KnobValue, ...]
    launch: Launch
    tuning: Launch | None
    outcome: Outcome = "staged"
    why: str | None = None
    log: str | None = None

    @property
    def explicit(self) -> tuple[KnobValue, ...]:
        """The knobs that a person set."""
        return tuple(knob for knob in self.knobs if knob.source in (ENVIRONMENT, SET))

    @property
    def switches(self) -> dict[str, str]:
        """The switches that the container is given; all others are at the image's default."""
        return {name: text for name, text in self.launch.environment.items() if name.startswith(model.SWITCH_PREFIX)}

    def document(self) -> dict[str, Any]:
        """For JSON: all that is stored, and what follows from it."""
        plain: dict[str, Any] = model.encode(self)
        return {**plain, "switches": self.switches, "kv": kv.document(self.launch), "caches": kv.caches(self.launch)}


def knobs(settings: Settings, image: str, image_source: str) -> tuple[KnobValue, ...]:
    """The values of all knobs; `image` is the one chosen, and `image_source` says why, where none was asked for."""
    own = settings.profile.by_role("image").name
    found = [KnobValue(name, one.text, one.source) for name, one in settings.by_name.items()]
    # An image that nobody asked for is no explicit setting: the next `up` may choose another.
    return tuple(KnobValue(own, image, image_source) if one.name == own and not one.value else one for one in found)


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def who() -> str:
    """Whoever runs this: user name and number, and behind sudo the name of whoever called it."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = "user"
    behind = os.environ.get("SUDO_USER", "")
    return f"{name} ({number})" + (f", sudo by {behind}" if number == 0 and behind.isprintable() and behind else "")
