"""What the doctor finds, as data."""

import enum
from dataclasses import dataclass

from patches.engine.apply import State
from patches.engine.series import Patch
from patches.tools.elsewhere import Candidate, Found


class Verdict(enum.Enum):
    """How a patch stands on another version; from best to worst."""

    CLEAN = "clean"
    OFFSET = "offset"
    UPSTREAM = "already upstream"
    PARTLY = "partly upstream"
    WAITS = "waits"
    GONE = "file gone"
    CONFLICT = "conflict"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Verdict).index(self)

    @property
    def needs_work(self) -> bool:
        """Whether a person has to do something before the image builds on that version."""
        return self not in (Verdict.CLEAN, Verdict.OFFSET)


@dataclass(frozen=True)
class HunkFinding:
    """A hunk on another version.

    `patch_line` is its head's line in the patch; `offset` is how many lines it moved, None where it has no
    place. `change` is what upstream did there between the two versions, as a diff of its own lines; `upstream`
    where it has the hunk's lines by now.
    """

    number: int
    patch_line: int
    state: State
    offset: int | None
    note: str
    change: tuple[str, ...]
    upstream: Found | None


@dataclass(frozen=True)
class FileFinding:
    """One file of a patch. `candidates`: where a file that is gone may be, each with what the patch would do there."""

    path: str
    verdict: Verdict
    note: str
    hunks: tuple[HunkFinding, ...]
    candidates: tuple[tuple[Candidate, str], ...] = ()


@dataclass(frozen=True)
class PatchFinding:
    """One patch. `own` is its verdict independent of the failed ones in `waits_for`, which are then left out."""

    patch: Patch
    verdict: Verdict
    own: Verdict
    waits_for: tuple[str, ...]
    note: str
    files: tuple[FileFinding, ...]
    rebased: bytes | None


@dataclass(frozen=True)
class Diagnosis:
    """A series on one other version. `shared` maps files that several steps touch to (patch, step) pairs."""

    project: str
    version: str
    file: str
    sha256: str
    size: int
    patches: tuple[PatchFinding, ...]
    shared: dict[str, tuple[tuple[str, str], ...]]
    problems: tuple[str, ...]

    @property
    def needs_work(self) -> bool:
        """Whether anything is left for a person to do beyond renewing line numbers."""
        return bool(self.problems) or any(one.verdict.needs_work for one in self.patches)

    @property
    def counts(self) -> dict[str, int]:
        """How many patches have each verdict; only those that occur."""
        found = [one.verdict for one in self.patches]
        return {verdict.value: found.count(verdict) for verdict in Verdict if verdict in found}
