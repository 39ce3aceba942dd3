"""What changed between two locks, for people and for programs."""

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from third_party.python.lockfile import Entry


@dataclass(frozen=True)
class Change:
    """One package that was added (before is None), removed (after is None) or replaced; sizes in bytes."""

    name: str
    before: str | None
    after: str | None
    size_before: int
    size_after: int


def between(before: dict[str, Entry], after: dict[str, Entry]) -> list[Change]:
    """Returns the changes from one lock to the other, by name."""
    changes = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            changes.append(Change(
                name,
                old.version if old else None,
                new.version if new else None,
                old.size if old else 0,
                new.size if new else 0,
            ))
    return changes


def as_json(changes: list[Change]) -> str:
    """Returns the changes as a JSON list."""
    return json.dumps([asdict(change) for change in changes], indent=1)


def as_table(name: str, changes: list[Change], after: dict[str, Entry]) -> str:
    """Returns the changes as a table under a line that counts them."""
    total = sum(entry.size for entry in after.values())
    console = Console(width=110)
    with console.capture() as text:
        console.print(f"{name}: {len(after)} wheels, {total / 1e6:,.1f} MB, {len(changes)} changed", highlight=False)
        if changes:
            table = Table("package", "before", "after", "MB")
            for change in changes:
                delta = (change.size_after - change.size_before) / 1e6
                table.add_row(change.name, change.before or "-", change.after or "-", f"{delta:+.1f}")
            console.print(table)
    return text.get().rstrip()
