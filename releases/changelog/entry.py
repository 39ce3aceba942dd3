"""CHANGELOG.md as data."""

import datetime
from dataclasses import dataclass, field

from releases.tag import Tag

SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
EVIDENCE = "Evidence"


@dataclass(frozen=True)
class Bullet:
    """A bullet point: its text on one line, as written (Markdown), and its line in CHANGELOG.md (1-based)."""

    text: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Entry:
    """One release.

    Attributes:
        tag: the image's tag.
        date: when it was cut.
        summary: the sentence or two under the heading.
        digest: sha256:<hex> of the OCI manifest.
        image_id: sha256:<hex> of the OCI configuration: the image's id in an engine.
        commit: 40 hex digits: the commit that the image was built from.
        base: name, version and commit of upstream, as the image's label org.moet.base has them.
        steps: (number, name) of all steps of the image, by number.
        follows: the release before it of the same line; None for a line's first.
        rollback: the tag to go back to; None where there is none to go to.
        rollback_switches: (switch, value) that give the old behaviour without another image.
        sections: heading, one of SECTIONS, to bullets.
        evidence: bullets of the section Evidence.
        line: of its heading, 1-based; takes no part in comparisons.
    """

    tag: Tag
    date: datetime.date
    summary: str
    digest: str
    image_id: str
    commit: str
    base: str
    steps: tuple[tuple[int, str], ...]
    follows: Tag | None
    rollback: Tag | None
    rollback_switches: tuple[tuple[str, str], ...]
    sections: dict[str, tuple[Bullet, ...]] = field(default_factory=dict)
    evidence: tuple[Bullet, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Changelog:
    """All of it: what stands before the releases, what is not released yet by line and section, and the releases.

    `entries` are in the file's order: newest first.
    """

    preamble: str
    unreleased: dict[str, dict[str, tuple[Bullet, ...]]]
    entries: tuple[Entry, ...]

    def newest(self, line: str) -> Entry | None:
        """The newest release of a line, None where there is none."""
        return next((entry for entry in self.entries if entry.tag.line == line), None)
