"""A series at a glance: order, steps, switches, sizes, tests."""

from dataclasses import dataclass
from typing import Any

from patches.engine.errors import PatchError
from patches.engine.series import Patch, load_series
from patches.engine.text import split_lines
from patches.tools.elsewhere import added_ranges, removed_ranges
from patches.tools.place import Place

_HEADER_STYLE = "bold"


@dataclass(frozen=True)
class Overview:
    """One patch: its place in the order from 1, and how many lines it adds and removes in each file."""

    order: int
    patch: Patch
    files: tuple[tuple[str, int, int], ...]

    @property
    def added(self) -> int:
        """Lines added in all files."""
        return sum(added for _, added, _ in self.files)

    @property
    def removed(self) -> int:
        """Lines removed in all files."""
        return sum(removed for _, _, removed in self.files)


def overviews(place: Place, name: str | None = None) -> list[Overview]:
    """Every patch of the series, or the one of that name (with or without .patch). Raises PatchError for another."""
    found = [_overview(order, patch) for order, patch in enumerate(load_series(place.folder).patches, 1)]
    if name is None:
        return found
    wanted = name if name.endswith(".patch") else f"{name}.patch"
    chosen = [one for one in found if one.patch.name == wanted]
    if not chosen:
        listed = ", ".join(one.patch.name for one in found) or "none"
        raise PatchError(f"{wanted}: not in {place.shown}: it has {listed}")
    return chosen


def as_json(place: Place, one: Overview) -> dict[str, Any]:
    """One patch as plain data."""
    header = one.patch.header
    return {
        "order": one.order,
        "name": one.patch.name,
        "sha256": one.patch.sha256,
        "steps": [step.as_json() for step in place.owners(one.patch.name)],
        "header": header.__dict__ if header else None,
        "faults": list(one.patch.faults),
        "files": [{"path": path, "added": added, "removed": removed} for path, added, removed in one.files],
        "added": one.added,
        "removed": one.removed,
        "tests": list(place.tests(one.patch.name)),
    }


def row(place: Place, one: Overview) -> list[object]:
    """One patch as a row under COLUMNS."""
    header = one.patch.header
    steps = place.owners(one.patch.name)
    defaults = ", ".join(dict.fromkeys(step.default for step in steps))
    switch = f"{header.switch} ({defaults})" if header and header.switch else "none"
    return [
        one.order,
        one.patch.name,
        ", ".join(str(step) for step in steps) or "none",
        switch if header else "header is faulty",
        f"+{one.added}",
        f"-{one.removed}",
        len(one.files),
        len(place.tests(one.patch.name)),
        header.last_update if header else "",
    ]


COLUMNS = (">", "patch", "step", "switch (default)", ">+", ">-", ">files", ">tests", "last update")


def styled(data: bytes) -> list[tuple[str, str]]:
    """The lines of a patch, each with the colour it has on a terminal."""
    found: list[tuple[str, str]] = []
    body = False
    for line in split_lines(data):
        body = body or line.startswith(b"--- ")
        found.append((line.decode("utf-8", "backslashreplace").removesuffix("\n"), _style(line, body)))
    return found


def _style(line: bytes, body: bool) -> str:
    if not body or line.startswith((b"--- ", b"+++ ")):
        return _HEADER_STYLE
    return {b"+": "green", b"-": "red", b"@": "cyan"}.get(line[:1], "")


def _overview(order: int, patch: Patch) -> Overview:
    files = tuple(
        (
            diff.path,
            sum(high - low for hunk in diff.hunks for low, high in added_ranges(hunk)),
            sum(high - low for hunk in diff.hunks for low, high in removed_ranges(hunk)),
        )
        for diff in patch.diffs
    )
    return Overview(order, patch, files)
