"""What could not be read or deleted: counted, and the first few told."""

from dataclasses import dataclass, field
from typing import Any

_TOLD = 5


@dataclass
class Faults:
    """Faults of one run; a full disk or a wrong user makes as many as there are files.

    Attributes:
        count: how many.
        told: a line for each of the first of them.
    """

    count: int = 0
    told: list[str] = field(default_factory=list)

    def add(self, path: str, why: str | OSError) -> None:
        """Adds one at `path`, which is relative to the tier's folder."""
        self.count += 1
        if len(self.told) < _TOLD:
            self.told.append(f"{path}: {(why.strerror or why) if isinstance(why, OSError) else why}")

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"count": self.count, "first": self.told}
