"""Opening the image that a text means, wherever it is."""

import re
from dataclasses import replace
from pathlib import Path

from images.engine.errors import EngineError
from images.engine.opening import open_engine
from images.inspect import archive, held, layout, records, remote
from images.inspect.errors import InspectError
from images.inspect.places import Folder, TarFile
from images.inspect.view import View, view_of
from releases.known import Known
from releases.tag import Tag
from tools.cli.errors import UserError

ORDER = """X is taken for the first of these that it fits:
  1. sha256:<64 hex digits>: a release's manifest or image id, by its record; else the engine's image of that id
  2. a path that begins with / or ./ or ../: a folder is an OCI image layout, a file a tar (docker save, podman save)
  3. LINE:BASE-rN of a release in CHANGELOG.md: its record; no image is needed
  4. a file or folder of that name
  5. REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:..., where REGISTRY has a dot or a colon or is localhost
  6. what the engine calls so: NAME:TAG, or an image id or its beginning
record://, layout://, tar://, registry:// and engine:// before X leave no choice."""

_SCHEME = re.compile(r"(record|layout|tar|registry|engine)://(.*)", re.DOTALL)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def open_image(
    text: str,
    known: Known | None,
    *,
    engine: str | None = None,
    host: str | None = None,
    plain_http: bool = False,
    authfile: Path | None = None,
    layout_ref: str | None = None,
) -> View:
    """The image that `text` means, checked as far as its hashes go. Only a registry's reference uses the network.

    Args:
        text: see ORDER.
        known: the releases; None where none are known.
        engine: "docker" or "podman"; None: see images.engine.opening.
        host: Docker's address.
        plain_http: allow a registry plain HTTP and certificates that do not verify.
        authfile: a registry's credentials.
        layout_ref: which image of a layout or tar that has several: NAME:TAG or digest.

    Raises:
        UserError: nothing is called so, or what is there is no image of Moet's, corrupt, hostile or too new.
    """
    scheme = _SCHEME.fullmatch(text)
    kind, rest = (scheme[1], scheme[2]) if scheme else (_kind(text, known), text)
    if kind == "record":
        return _record(rest, known)
    if kind == "layout":
        return _layout(Path(rest), layout_ref, known)
    if kind == "tar":
        return _tar(Path(rest), layout_ref, known)
    if kind == "registry":
        return _described(view_of(remote.find(rest, plain_http, authfile)), known)
    return _engine(rest, known, engine, host, said=bool(scheme))


def release_of(view: View, known: Known | None) -> Tag | None:
    """The release whose image this is, by the digest of its manifest or its configuration; None: no release's."""
    found = records.by_identifier(known, {view.image_id} | ({view.digest} if view.digest else set()))
    return found[0] if found else None


def _kind(text: str, known: Known | None) -> str:
    path = Path(text)
    if _DIGEST.fullmatch(text):
        return "record" if records.by_identifier(known, {text}) else "engine"
    if text.startswith(("/", "./", "../")) or text in (".", ".."):
        return "tar" if path.is_file() else "layout"
    if _is_release(text, known):
        return "record"
    if path.is_dir() or path.is_file():
        return "layout" if path.is_dir() else "tar"
    return "registry" if remote.address(text) else "engine"


def _is_release(text: str, known: Known | None) -> bool:
    try:
        tag = Tag.parse(text)
    except UserError:
        return False
    # A broken CHANGELOG must be seen, and not have another image explained in place of the release.
    return known is not None and any(entry.tag == tag for entry in known.changelog.entries)


def _record(text: str, known: Known | None) -> View:
    if known is None:
        raise InspectError(f"{text}: no releases are known here: go into Moet's source tree or name it with --tree DIR")
    if _DIGEST.fullmatch(text):
        found = records.by_identifier(known, {text})
        if found is None:
            raise InspectError(f"{text}: no release has this digest or image id")
        return found[1]
    return records.by_tag(known, Tag.parse(text))


def _layout(path: Path, name: str | None, known: Known | None) -> View:
    if not path.is_dir():
        raise InspectError(f"{path}: there is no such file or folder")
    if not (path / layout.MARK).is_file():
        raise InspectError(f"{path}: is no OCI image layout (it has no file {layout.MARK})")
    return _described(view_of(layout.find(Folder(path), "layout", f"layout {path}", name)), known)


def _tar(path: Path, name: str | None, known: Known | None) -> View:
    if not path.is_file():
        raise InspectError(f"{path}: there is no such file")
    place = TarFile(path)
    if place.size("index.json") is not None:
        return _described(view_of(layout.find(place, "tar", f"tar {path}", name)), known)
    if place.size(archive.MARK) is not None:
        return _described(view_of(archive.find(place, f"tar {path}", name)), known)
    raise InspectError(f"{path}: is a tar, but of no image (neither index.json nor manifest.json is in it)")


def _engine(name: str, known: Known | None, kind: str | None, host: str | None, said: bool) -> View:
    nothing = "" if said else f"{_unknown(name, known)}; "
    try:
        opened = open_engine(kind, host)
    except EngineError as error:
        raise InspectError(f"{nothing}{error}") from None
    try:
        found = held.find(opened, name, known)
    finally:
        opened.close()
    if found is None:
        raise InspectError(f"{nothing}{opened.name} has no image {name!r}")
    return found


def _unknown(name: str, known: Known | None) -> str:
    try:
        if known is not None:
            known.entry(Tag.parse(name))
    except UserError as error:
        if not str(error).startswith(repr(name)):
            return f"{error}; and no file is called so"
    return f"{name!r}: is no known release, no file, no folder and no registry's reference"


def _described(view: View, known: Known | None) -> View:
    """With a note where the image is a release's, but packed otherwise than the release."""
    release = records.by_identifier(known, {view.image_id})
    if release is None or view.digest in (None, release[1].digest):
        return view
    note = f"{release[0]} by its image id, but its layers were packed anew: the release's digest is {release[1].digest}"
    return replace(view, notes=(*view.notes, note))
