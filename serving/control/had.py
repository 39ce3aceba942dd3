"""Getting an image into the engine, before anything is stopped for it."""

import shlex

from images.engine.docker_engine import DockerEngine
from images.engine.errors import EngineError
from images.engine.interface import EngineImage
from images.engine.reference import parse
from releases.known import Known
from releases.rollback import rollback_sources
from releases.rollback.rollback_sources import Sources
from releases.tag import Tag
from serving.containers.containers import Containers
from serving.launch import image as images
from tools.cli.errors import UserError
from tools.cli.output import Output


def have(
    asked: str,
    image_id: str | None,
    containers: Containers,
    known: Known,
    registry: str | None,
    plain_http: bool,
    out: Output,
) -> EngineImage:
    """The image in the engine: it has it, or a release is pulled or built, or a digest is pulled.

    A release is the CHANGELOG's, whatever its tag points at in the engine.

    Args:
        asked: its name.
        image_id: the engine's id, where no other will do.
        containers: the engine.
        known: releases.
        registry: HOST/NAME of the repository that a release is pulled from; None: no registry.
        plain_http: allow plain HTTP there.
        out: where progress is shown.

    Raises UserError where it cannot be had.
    """
    # A release's tag may point at another image in the engine, which is no release; that is looked at with it.
    tag = images.released(asked, known)
    if image_id or asked != str(tag):
        found = containers.image(image_id or asked)
        if found is not None:
            return found
    engine = DockerEngine(containers.host)
    try:
        if tag:
            found = _release(tag, engine, known, registry, plain_http, out)
        else:
            found = _pulled(asked, engine, plain_http, out)
    finally:
        engine.close()
    if image_id is not None and found.image_id != image_id:
        gone = f"{asked} was {image_id}, which {containers.name} does not have"
        raise EngineError(f"{gone}: it is {found.image_id} now; go to another generation")
    return found


def _release(
    tag: Tag, engine: DockerEngine, known: Known, registry: str | None, plain_http: bool, out: Output
) -> EngineImage:
    sources = Sources(engine, registry, plain_http, known.root)
    return _held(engine, rollback_sources.obtain(sources, known, known.entry(tag), out).image_id)


def _pulled(asked: str, engine: DockerEngine, plain_http: bool, out: Output) -> EngineImage:
    """An image by its digest; by a tag nothing is pulled, which may be another image each time."""
    if "@" in asked and _has_registry(asked):
        out.note(f"pulling {asked}")
        with out.progress() as bar:
            return engine.pull(f"{_repository(asked)}@{asked.partition('@')[2]}", plain_http, bar)
    load = f"bazel run //images/{asked.partition(':')[0]}:load"
    mend = f"docker pull {shlex.quote(asked)}" if _has_registry(asked) else load
    raise UserError(f"{engine.name} does not have {asked}, which is no release in CHANGELOG.md: {mend}")


def _held(engine: DockerEngine, image_id: str) -> EngineImage:
    found = engine.find(image_id)
    if found is None:
        raise EngineError(f"{engine.name} got {image_id} and does not have it: run this again")
    return found


def _repository(asked: str) -> str:
    """REGISTRY/NAME of REGISTRY/NAME[:TAG]@DIGEST."""
    base = asked.partition("@")[0]
    return parse(base).repository if ":" in base.rpartition("/")[2] else base


def _has_registry(asked: str) -> bool:
    base = asked.partition("@")[0]
    return bool(parse(base if ":" in base.rpartition("/")[2] else f"{base}:any").registry)
