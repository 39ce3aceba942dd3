"""What changed between two locks, for people and for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from rich.console import Console
from rich.table import Table


class Pin(Protocol):
    """What a lock holds of one package: `size` in bytes, `label` the version as people read it."""

    @property
    def version(self) -> str:
        """The version alone."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the package's file."""
        ...

    @property
    def label(self) -> str:
        """The version as people read it."""
        ...


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


def between(before: Mapping[str, Pin], after: Mapping[str, Pin]) -> list[Change]:
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
        changes.append(Change(name, kind, *_said(old, new)))
    return changes


def as_json(changes: Sequence[Change]) -> str:
    """Returns the changes as a JSON list."""
    return json.dumps([asdict(change) for change in changes], indent=1)


def as_table(noun: str, changes: Sequence[Change], after: Mapping[str, Pin]) -> str:
    """Returns the changes as a table under a line that counts them; `noun` is what is locked, in the plural."""
    console = Console(width=110)
    total = sum(pin.size for pin in after.values())
    with console.capture() as text:
        console.print(f"{len(after)} {noun}, {total / 1e6:,.1f} MB, {len(changes)} changed", highlight=False)
        if changes:
            table = Table("package", "", "before", "after", "MB")
            for change in changes:
                delta = (change.size_after - change.size_before) / 1e6
                table.add_row(change.name, change.kind, change.before or "-", change.after or "-", f"{delta:+.2f}")
            console.print(table)
    return text.get().rstrip()


def _said(old: Pin | None, new: Pin | None) -> tuple[str | None, str | None, int, int]:
    labels = (old.label if old else None, new.label if new else None)
    return (*labels, old.size if old else 0, new.size if new else 0)
