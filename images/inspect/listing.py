"""Tags: those that the tree knows, an engine's and a registry's, and where they disagree."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from images.engine.interface import Engine, EngineImage
from images.inspect.errors import InspectError
from images.inspect.remote import address
from images.inspect.text import plain
from images.registry.client import Registry
from images.registry.descriptor import Descriptor
from releases.changelog.entry import Entry
from releases.known import Known
from releases.tag import Tag
from tools.cli.errors import UserError
from tools.cli.output import Output

SCHEMA = "moet.image-list.v1"
_TAG = "org.moet.tag"
_DEV = "-dev"


@dataclass
class Row:
    """One tag. `engine` are the ids of the engine's images of that tag, `problems` a line for each disagreement."""

    tag: str
    entry: Entry | None = None
    record: bool = False
    engine: list[str] = field(default_factory=list)
    registry: str | None = None
    current: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def unreleased(self) -> bool:
        """Whether it is the tag of builds that are no release."""
        return self.tag.endswith(_DEV)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        entry = self.entry
        return {
            "tag": self.tag,
            "date": entry.date.isoformat() if entry else None,
            "commit": entry.commit if entry else None,
            "digest": entry.digest if entry else None,
            "image_id": entry.image_id if entry else None,
            "record": self.record,
            "engine": self.engine,
            "registry": self.registry,
            "unreleased": self.unreleased,
            "current": self.current,
            "problems": self.problems,
        }


class Listing:
    """Rows by tag, filled from the tree, then an engine, a registry and the host's state, as far as each is there.

    `line` is the only line listed; None: all.
    """

    def __init__(self, line: str | None) -> None:
        self.line = line
        self.rows: dict[str, Row] = {}

    def add_known(self, known: Known) -> None:
        """The releases of CHANGELOG.md, newest first. Raises UserError where it cannot be read."""
        for entry in known.changelog.entries:
            if not self._wanted(entry.tag.line):
                continue
            row = self._row(str(entry.tag))
            row.entry = entry
            try:
                known.record(entry.tag)
                row.record = True
            except UserError as error:
                row.problems.append(str(error))

    def add_engine(self, engine: Engine) -> None:
        """Images of Moet's that the engine has, by their own word (label org.moet.tag) and by their tags."""
        for image in engine.images():
            own = str(image.labels.get(_TAG, ""))
            # REGISTRY/PREFIX/NAME:TAG, as a pull leaves it, claims the release as much as NAME:TAG.
            named = (tag.rpartition("/")[2] for tag in image.tags)
            for tag in dict.fromkeys([own, *(tag for tag in named if tag in self.rows)]):
                if tag and self._wanted(tag.partition(":")[0]):
                    self._add_image(engine, image, tag, own)

    def add_registry(self, registry: Registry, name: str, line: str) -> None:
        """Tags of a repository, each as `line`:TAG. Raises RegistryError."""
        prefix = f"{line}:"
        for tag in registry.tags(name):
            # Fallback tags of signatures and the like are no images.
            if tag.startswith("sha256-"):
                continue
            found = registry.resolve(name, tag)
            self._add_remote(f"{registry.address}/{name}", prefix + tag, found)

    def add_current(self, tags: Iterable[str]) -> None:
        """Marks what the host's state says is current."""
        for tag in tags:
            self._row(tag).current = True

    @property
    def disagree(self) -> bool:
        """Whether any row has a problem."""
        return any(row.problems for row in self.rows.values())

    def document(self) -> dict[str, Any]:
        """The list as one JSON document."""
        return {
            "schema": SCHEMA,
            "line": self.line,
            "disagree": self.disagree,
            "tags": [row.document() for row in self.rows.values()],
        }

    def show(self, out: Output) -> None:
        """Prints the list, and below it a line for each disagreement."""
        if not self.rows:
            out.line("no tags")
            return
        columns = ["", "tag", "released", "digest", "engine", "registry", ""]
        out.table(columns, [_cells(row) for row in self.rows.values()])
        for row in self.rows.values():
            for problem in row.problems:
                out.line(plain(f"{row.tag}: {problem}" if not problem.startswith(row.tag) else problem))

    def _add_image(self, engine: Engine, image: EngineImage, tag: str, own: str) -> None:
        row = self._row(tag)
        if image.image_id not in row.engine:
            row.engine.append(image.image_id)
        if own != tag:
            row.problems.append(f"{engine.name} has it at {image.image_id}, which says that it is {own or 'nothing'}")
        if row.unreleased:
            return
        if row.entry is None:
            row.problems.append(f"{engine.name} has {image.image_id} of it, CHANGELOG.md has no such release")
        elif engine.own_id(row.entry.image_id, row.entry.digest) != image.image_id:
            expected = engine.own_id(row.entry.image_id, row.entry.digest)
            row.problems.append(f"{engine.name} has {image.image_id} of it, CHANGELOG.md says {expected}")

    def _add_remote(self, where: str, tag: str, found: Descriptor | None) -> None:
        if found is None:
            return
        row = self._row(tag)
        row.registry = found.digest
        if row.unreleased:
            return
        if row.entry is None:
            try:
                Tag.parse(tag)
            except UserError:
                return
            row.problems.append(f"{where} has {found.digest} of it, CHANGELOG.md has no such release")
        elif row.entry.digest != found.digest:
            row.problems.append(f"{where} has {found.digest}, CHANGELOG.md says {row.entry.digest}")

    def _row(self, tag: str) -> Row:
        return self.rows.setdefault(tag, Row(tag))

    def _wanted(self, line: str) -> bool:
        return self.line in (None, line)


def split(text: str, line: str | None) -> tuple[str, str, str]:
    """Address, repository and line of --registry HOST[:PORT][/[PREFIX/]NAME]. Raises InspectError."""
    found = address(text if "/" in text else f"{text}/{line or ''}")
    if found is None or found[2]:
        missing = "" if "/" in text or line else ", or name the line to list"
        raise InspectError(f"--registry {text!r}: expected HOST[:PORT]/NAME, as in 127.0.0.1:5000/dsv41{missing}")
    return found[0], found[1], line or found[1].rpartition("/")[2]


def _cells(row: Row) -> list[str]:
    entry = row.entry
    state = "unreleased" if row.unreleased else "" if entry else "not in CHANGELOG.md"
    return [
        "*" if row.current else "",
        plain(row.tag),
        entry.date.isoformat() if entry else state,
        _brief(entry.digest) if entry else "",
        " ".join(_brief(each) for each in row.engine),
        _brief(row.registry) if row.registry else "",
        "DISAGREES" if row.problems else "",
    ]


def _brief(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
