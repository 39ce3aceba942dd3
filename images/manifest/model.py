"""The image manifest's data, and how it is read from JSON and written to it.

Only the standard library: the same file is installed in the image, where attestation uses it.
"""

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

PATH = "/usr/share/moet/manifest.json"
ANCHOR = "MOET_MANIFEST_SHA256"
SWITCH_PREFIX = "VLLM_MOET_"
# Where it is 1, the entry point tests the kernels before it serves; no switch.
SELFTEST = "VLLM_MOET_SELFTEST"

Schema = Literal["moet.manifest.v1"]
Numerics = Literal["identical", "rounding", "format", "none"]
PinKind = Literal["wheel", "deb", "source"]
FileKind = Literal["overlay", "kernel", "runtime"]

SCHEMA: Schema = "moet.manifest.v1"

_T = TypeVar("_T")


class DataError(Exception):
    """JSON of another shape than expected: one line with the place, what was expected and what was found."""


@dataclass(frozen=True)
class Base:
    """The upstream project that the image serves with; `commit` is its upstream commit in hex."""

    name: str
    version: str
    commit: str


@dataclass(frozen=True)
class Pin:
    """One input: `file` with its `sha256` in hex where it is fetched, `commit` of its source where known.

    Wheels and debs are fetched; a source that a wheel bundles has only a commit.
    """

    name: str
    version: str
    kind: PinKind
    file: str | None = None
    sha256: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class Step:
    """A numbered change of the line.

    `switch` is the environment variable that turns it off with 0, or None where it changes no behaviour;
    `default` is its value where it is not set. `patches` and `kernels` are names.
    """

    number: int
    name: str
    reason: str
    switch: str | None
    default: str
    numerics: Numerics
    evidence: str
    drop_when: str
    patches: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Patch:
    """A patch and its header; `files` are the paths below the site folder that it changes."""

    name: str
    sha256: str
    description: str
    reason: str
    step: str
    switch: str | None
    forwarded: str
    drop_when: str
    last_update: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Switch:
    """An environment variable of a step: 0 gives back upstream's path, `on` is its only other value."""

    name: str
    default: str
    on: str
    step: str
    meaning: str


@dataclass(frozen=True)
class Source:
    """The artifact that an overlay was made against; `sha256` in hex."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Overlay:
    """A project of which files were changed, installed below the manifest's `site`."""

    project: str
    version: str
    source: Source


@dataclass(frozen=True)
class File:
    """A file that attestation checks: absolute `path` in the image, `sha256` in hex, `size` in bytes."""

    path: str
    sha256: str
    size: int
    kind: FileKind


@dataclass(frozen=True)
class Manifest:
    """What an image is made of. `site` is the absolute path of the folder that packages are installed in.

    `commit` is Moet's, in hex, that a release was built from; None where the image is no release.
    """

    schema: Schema
    line: str
    tag: str
    base: Base
    site: str
    overlays: tuple[Overlay, ...]
    pins: tuple[Pin, ...]
    steps: tuple[Step, ...]
    patches: tuple[Patch, ...]
    switches: tuple[Switch, ...]
    files: tuple[File, ...]
    commit: str | None = None


def record_path(site: str, project: str, version: str) -> str:
    """The path of an installed project's RECORD (PEP 376), with the name as wheels escape it."""
    return f"{site}/{project.replace('-', '_')}-{version}.dist-info/RECORD"


def library_path(site: str, family: str) -> str:
    """The path of the library of a family of kernels."""
    return f"{site}/moet_kernels/{family}/{family}.so"


def library_sha256(manifest: Manifest, family: str) -> str | None:
    """The hash in hex of the library of a family of kernels; None where the image has none."""
    path = library_path(manifest.site, family)
    return next((file.sha256 for file in manifest.files if file.path == path), None)


def loads(data: bytes) -> Any:
    """JSON from UTF-8 bytes. Raises DataError, also where a key of an object stands twice."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise DataError("not a manifest: nested too deeply") from None


def dumps(value: Any) -> bytes:
    """A data class, or plain data, as canonical JSON: sorted keys, one space a level, a final newline."""
    plain = encode(value) if dataclasses.is_dataclass(value) else value
    return (json.dumps(plain, indent=1, sort_keys=True) + "\n").encode("ascii")


def encode(value: Any) -> Any:
    """A data class as plain data; a field whose default is None is left out where it is None."""
    if dataclasses.is_dataclass(value):
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: encode(item) for field, item in pairs if (item, field.default) != (None, None)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return value


def decode(kind: type[_T], value: Any, where: str = "") -> _T:
    """Plain data as the data class `kind`, strictly: no key too many or too few, no conversion.

    `where` names the value in messages ("steps[2]"). Raises DataError.
    """
    return typing.cast(_T, _decode(kind, value, where))


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_object(kind, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _unexpected(where, "a list", value)
        item = typing.get_args(kind)[0]
        return tuple(_decode(item, entry, f"{where}[{index}]") for index, entry in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _unexpected(where, "an object", value)
        item = typing.get_args(kind)[1]
        return {name: _decode(item, entry, f"{where}.{name}") for name, entry in value.items()}
    if origin is Literal:
        choices = typing.get_args(kind)
        if not isinstance(value, str) or value not in choices:
            raise _unexpected(where, "one of " + ", ".join(choices), value)
        return value
    if origin is types.UnionType:
        return None if value is None else _decode(typing.get_args(kind)[0], value, where)
    if type(value) is not kind:
        raise _unexpected(where, "an integer" if kind is int else "a string", value)
    return value


def _decode_object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _unexpected(where, "an object", value)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    dot = where + "." if where else ""
    for name in value:
        if name not in fields:
            raise DataError(f"{dot}{name}: unknown key, expected only {', '.join(fields)}")
    for name, field in fields.items():
        if name not in value and field.default is dataclasses.MISSING:
            raise DataError(f"{dot}{name}: missing")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _decode(hints[name], item, dot + name) for name, item in value.items()})


def _unexpected(where: str, expected: str, found: Any) -> DataError:
    shown = json.dumps(found)
    shown = shown if len(shown) < 60 else shown[:57] + "..."
    return DataError(f"{where or 'top level'}: expected {expected}, found {shown}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise DataError(f"{name}: key stands twice in one object")
        result[name] = value
    return result
