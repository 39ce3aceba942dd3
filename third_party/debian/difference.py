"""What changed between two locks of Debian packages, for people and for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from third_party.debian.lockfile import Deb


@dataclass(frozen=True)
class Change:
    """One package added (before is None), removed (after is None) or replaced; sizes in bytes.

    `kind` is added, removed, upgraded (another version) or changed (the same version, other data).
    """

    name: str
    kind: str
    before: str | None
    after: str | None
    size_before: int
    size_after: int


def between(before: dict[str, Deb], after: dict[str, Deb]) -> list[Change]:
    """Returns the changes from one lock to the other, by name."""
    changes = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if old and new:
            kind = "changed" if old.version == new.version else "upgraded"
        else:
            kind = "removed" if old else "added"
        changes.append(Change(name, kind, _said(old), _said(new), old.size if old else 0, new.size if new else 0))
    return changes


def as_json(changes: Sequence[Change]) -> str:
    """Returns the changes as a JSON list."""
    return json.dumps([asdict(change) for change in changes], indent=1)


def as_table(changes: Sequence[Change], after: dict[str, Deb]) -> str:
    """Returns the changes as a table under a line that counts them."""
    console = Console(width=110)
    total = sum(deb.size for deb in after.values())
    with console.capture() as text:
        console.print(f"{len(after)} packages, {total / 1e6:,.1f} MB, {len(changes)} changed", highlight=False)
        if changes:
            table = Table("package", "", "before", "after", "MB")
            for change in changes:
                delta = (change.size_after - change.size_before) / 1e6
                table.add_row(change.name, change.kind, change.before or "-", change.after or "-", f"{delta:+.2f}")
            console.print(table)
    return text.get().rstrip()


def _said(deb: Deb | None) -> str | None:
    return f"{deb.version} ({deb.suite})" if deb else None
