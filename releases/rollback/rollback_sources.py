"""Where a release's image can be had, in turn: the engine, a registry, a build of its commit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from images.engine.interface import Engine, EngineImage
from images.engine.reference import parse
from images.registry.client import Registry
from releases.changelog.entry import Entry
from releases.known import Known
from releases.record import Record
from releases.tree.git import Git
from releases.tree.released_image import released_image
from tools.cli.errors import UserError
from tools.cli.output import Output

Source = Literal["engine", "registry", "rebuild"]


@dataclass(frozen=True)
class Sources:
    """Where to look.

    Attributes:
        engine: where the image is to be.
        registry: HOST/NAME of the repository that it is pulled from; None: no registry.
        plain_http: allow plain HTTP there.
        root: Moet's source tree, for a build; None: no build.
        rebuild: build it, and ask no registry for it.
        key: file of the public key that must have signed it; None: signatures are not looked at.
    """

    engine: Engine
    registry: str | None = None
    plain_http: bool = False
    root: Path | None = None
    rebuild: bool = False
    key: Path | None = None


@dataclass(frozen=True)
class Had:
    """A release's image in the engine: its id there, where it came from, and in words what was tried before."""

    image_id: str
    source: Source
    tried: tuple[str, ...] = field(default=())


def held(sources: Sources, entry: Entry) -> EngineImage | None:
    """The release as the engine has it already, by its id; None where it has not.

    Raises UserError where the engine has another image under the release's tag.
    """
    engine = sources.engine
    wanted = engine.own_id(entry.image_id, entry.digest)
    tagged = engine.find(str(entry.tag))
    if tagged is not None and tagged.image_id != wanted and entry.digest not in tagged.manifest_digests:
        program = engine.name.partition(" ")[0]
        raise UserError(
            f"{entry.tag} is {tagged.image_id} in {engine.name}, the release is {wanted}: a tag is never moved; give"
            f" that image another name ({program} tag {entry.tag} OTHER:NAME; {program} rmi {entry.tag}) and run this"
            " again"
        )
    return tagged or engine.find(wanted)


def obtain(sources: Sources, known: Known, entry: Entry, out: Output) -> Had:
    """Gets the release into the engine, checks that it is the CHANGELOG's, and gives it its tag if it has none.

    Raises UserError, with all that was tried, where it cannot be had.
    """
    there = held(sources, entry)
    if sources.key is not None:
        _verify(sources, sources.key, entry, known.record(entry.tag), out)
    tried = [f"{sources.engine.name} does not have it"]
    if there is not None:
        return _tagged(sources, entry, Had(there.image_id, "engine"))
    if sources.registry and not sources.rebuild:
        try:
            return _tagged(sources, entry, Had(_pull(sources, sources.registry, entry, out), "registry", tuple(tried)))
        except UserError as error:
            out.note(str(error))
            tried.append(str(error))
    if sources.root is not None:
        try:
            return _tagged(sources, entry, Had(_build(sources, sources.root, entry, out), "rebuild", tuple(tried)))
        except UserError as error:
            tried.append(f"its build: {error}")
    else:
        tried.append("there is no source tree to build it in")
    advice = "name a registry that has it with --registry HOST/NAME, or run this in Moet's source tree"
    raise UserError(f"{entry.tag} cannot be had: {'; '.join(tried)}. Nothing was changed; {advice}")


def split(registry: str) -> tuple[str, str]:
    """Splits HOST[:PORT]/NAME. Raises UserError where it is not of that form."""
    reference = parse(f"{registry}:tag")
    if not reference.registry:
        raise UserError(f"--registry {registry!r}: expected HOST/NAME, for example 127.0.0.1:5000/dsv41")
    return reference.registry, reference.name


def _verify(sources: Sources, key: Path, entry: Entry, record: Record, out: Output) -> None:
    if not sources.registry:
        raise UserError("--key needs --registry HOST/NAME: the signature lies beside the image there")
    # cryptography is a compiled wheel, which a host that verifies nothing need not have.
    from releases.attestations import statement, verify

    address, name = split(sources.registry)
    with Registry(address, sources.plain_http) as registry, out.doing(f"verifying the signatures of {entry.tag}"):
        verify.verify_signature(registry, name, entry.digest, [key], statement.of_release(entry, record))


def _pull(sources: Sources, registry: str, entry: Entry, out: Output) -> str:
    reference = f"{'/'.join(split(registry))}@{entry.digest}"
    out.note(f"pulling {entry.tag} from {registry} by its digest")
    with out.progress() as bar:
        found = sources.engine.pull(reference, sources.plain_http, bar)
    wanted = sources.engine.own_id(entry.image_id, entry.digest)
    if found.image_id != wanted:
        raise UserError(f"{reference} is {found.image_id} in {sources.engine.name}, the CHANGELOG says {wanted}")
    return found.image_id


def _build(sources: Sources, root: Path, entry: Entry, out: Output) -> str:
    with released_image(Git(root), entry, out) as image, out.progress() as bar:
        return sources.engine.load(image, parse(str(entry.tag)), bar).image_id


def _tagged(sources: Sources, entry: Entry, had: Had) -> Had:
    sources.engine.tag(had.image_id, str(entry.tag))
    return had
