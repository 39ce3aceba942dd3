"""Which server is checked, and what is known of it before it is asked anything."""

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from images.engine.errors import EngineError
from releases.changelog.entry import Entry
from serving.check.client import base_url
from serving.containers.containers import Containers
from serving.generations import store
from serving.generations.generation import Generation
from serving.launch import key
from serving.launch.key import Key
from serving.launch.launch import Launch
from serving.probe.api import Api
from serving.probe.attested import Attested
from serving.probe.ready import attestation
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Target:
    """A server.

    Attributes:
        api: where it is asked; `api.model` is "" where the server is to say it.
        words: what it is called in a report.
        local: whether it runs on this host, so that this host's cards are its own.
        line: of its profile; None for a server that is known by its URL alone.
        launch: how it was started; None likewise.
        knobs: KNOB=VALUE that are not at their defaults, without paths and further arguments; None likewise.
        digest: of its image's manifest; None where it is not known for sure.
        tag: of its image, where that is a known release; None likewise.
        attested: what its image reported; None likewise.
        doubt: why the image is not known, in one line; "" where it is.
    """

    api: Api
    words: str
    local: bool
    line: str | None = None
    launch: Launch | None = None
    knobs: tuple[str, ...] | None = None
    digest: str | None = None
    tag: str | None = None
    attested: Attested | None = None
    doubt: str = "a server that is known by its URL does not say which image it is made of"


def by_url(url: str, model: str | None, key_file: str | None, environment: Mapping[str, str] = os.environ) -> Target:
    """A server at a URL. Raises UserError for what is no URL, or no key.

    The environment's API key is for servers of this host: it is sent to no other.
    """
    base = base_url(url)
    local = _is_loopback(base)
    return Target(Api(base, model or "", _key(key_file, environment if local else {})), base, local)


def by_name(
    name: str | None, key_file: str | None, releases: Sequence[Entry], environment: Mapping[str, str] = os.environ
) -> Target:
    """A server that `moet serve up` started.

    Args:
        name: None is the only one.
        key_file: of the API key; None has it where the server has it from.
        releases: those that are known, by which an engine's image is recognised.
        environment: may have the API key.

    Raises UserError where there is no such server, or no key. An engine that does not answer leaves its image unknown.
    """
    name = name or store.only()
    generation = store.read(name).current
    if generation is None:
        raise UserError(f"no server {name!r} was started here: `moet serve up` starts one, a URL names any other")
    launch = generation.launch
    if not launch.api:
        raise UserError(f"{name} is one of several hosts, and answers no requests: check it on the first one")
    secret = _key(key_file, environment) if key_file else key.secret(launch.key, environment)
    image = _image(generation, releases)
    words = f"{name}, generation {generation.number} ({generation.image.name})"
    return Target(Api.of(launch, secret), words, True, launch.line, launch, _knobs(generation), *image)


def _key(key_file: str | None, environment: Mapping[str, str]) -> str | None:
    if key_file:
        return key.secret(Key(key_file), environment)
    return environment.get(key.VARIABLE) or None


def _knobs(generation: Generation) -> tuple[str, ...]:
    """What makes figures what they are. Paths are this host's own, and further arguments may be secret."""
    told = [knob for knob in generation.explicit if "/" not in knob.value and not knob.name.startswith("EXTRA_")]
    return tuple(f"{knob.name}={knob.value}" for knob in told if knob.value != generation.image.asked)


def _image(
    generation: Generation, releases: Sequence[Entry]
) -> tuple[str | None, str | None, Attested | None, str]:
    """Digest and released tag of the image that is served, its report, and why the digest is not known."""
    asked, name = generation.image, generation.launch.host_name
    try:
        containers = Containers()
        try:
            container = containers.find(name)
            state = container.state() if container else None
            if container is None or state is None or not state.running:
                return None, None, None, f"no container {name} is running"
            if state.image_id != asked.image_id:
                return None, None, None, f"container {name} is made of {state.image_id}, not of {asked.name}"
            report = attestation(container, state.started_at)
        finally:
            containers.close()
    except EngineError as error:
        return None, None, None, str(error)
    for entry in releases:
        # What the engine's ids are depends on how it stores images.
        if state.image_id in (entry.image_id, entry.digest) or asked.digest == entry.digest:
            return entry.digest, str(entry.tag), report, ""
    doubt = "" if asked.digest else f"{asked.name} is no known release, and the engine does not know its digest"
    return asked.digest, None, report, doubt


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
