"""What the manifest is merged from: a line's data, overlays, pins and the listings of layers."""

import dataclasses
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from images.manifest import model
from images.oci import layer

_T = TypeVar("_T")


class ManifestError(Exception):
    """Inputs that make no manifest: `problems` are one line each, for the person at the keyboard."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class LineStep(model.Step):
    """A step as the line's data has it: with `on`, the value of its switch that turns it on.

    `meaning` says what the switch does, if more than on and off.
    """

    on: str = "1"
    meaning: str | None = None


@dataclass(frozen=True)
class Line:
    """line.json: `tag` is `<line>:<base>-r<N>`, `created` a time such as 2026-01-31T12:00:00Z.

    What is no release has `-dev` after the tag and no `commit`.
    """

    line: str
    tag: str
    base: model.Base
    steps: tuple[LineStep, ...]
    labels: dict[str, str]
    created: str | None = None
    commit: str | None = None


@dataclass(frozen=True)
class OverlayFile:
    """A changed file, by its path below the site folder; `before` is None where the series adds it."""

    path: str
    before: str | None
    after: str
    patches: tuple[str, ...]


@dataclass(frozen=True)
class Overlay:
    """overlay.json, as the patch engine writes it."""

    project: str
    version: str
    source: model.Source
    patches: tuple[model.Patch, ...]
    files: tuple[OverlayFile, ...]


def read(kind: type[_T], path: Path) -> _T:
    """Reads a JSON file as the data class `kind`. Raises ManifestError naming the file and the place."""
    try:
        return model.decode(kind, _load(path))
    except model.DataError as error:
        raise ManifestError(f"{path}: {error}") from None


def stamped(line: Line, status: Path) -> Line:
    """`line` as the release of a commit: with the commit and its time from Bazel's stable status file.

    Raises ManifestError where the file has no such keys: the build lacks --config=release.
    """
    try:
        values = dict(entry.partition(" ")[::2] for entry in status.read_text().splitlines())
        commit, created = values["STABLE_MOET_COMMIT"], values["STABLE_MOET_COMMIT_TIME"]
    except OSError as error:
        raise ManifestError(f"{status}: cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise ManifestError(f"{status}: lacks {error.args[0]}: a release is built with --config=release") from None
    return dataclasses.replace(line, commit=commit, created=created)


def read_pins(path: Path) -> tuple[model.Pin, ...]:
    """Reads a JSON list of pins. Raises ManifestError naming the file and the place in it."""
    try:
        return model.decode(tuple[model.Pin, ...], _load(path), "pins")
    except model.DataError as error:
        raise ManifestError(f"{path}: {error}") from None


def read_layer(kind: str, listing: Path) -> list[model.File]:
    """The regular files of a layer, from the listing that its writer left; `kind` is theirs in the manifest.

    Raises ManifestError.
    """
    kinds = {name: name for name in typing.get_args(model.FileKind)}
    if kind not in kinds:
        raise ManifestError(f"{listing}: kind {kind!r} of files: expected one of {', '.join(kinds)}")
    try:
        entries = layer.read_listing(listing)
    except (OSError, ValueError, TypeError) as error:
        raise ManifestError(f"{listing}: is no layer's listing: {error}") from None
    return [
        model.File("/" + entry.path, entry.content, entry.size, kinds[kind])
        for entry in entries
        if entry.type == "f"
    ]


def _load(path: Path) -> Any:
    try:
        return model.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None
