"""The evidence of the ledger: a double build, as `bazel run //releases/ledger:rebuild` saw it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tools.cli.errors import UserError

SCHEMA = "moet.ledger.v1"
PATH = Path("releases/ledger/evidence.json")


@dataclass(frozen=True)
class Row:
    """One artifact: what was found of it, sha256:<hex>, by the first and by the second build."""

    name: str
    group: str
    target: str
    first: str
    second: str

    @property
    def same(self) -> bool:
        """Whether both builds made the same bytes."""
        return self.first == self.second


@dataclass(frozen=True)
class Evidence:
    """A double build: `about` is all but the rows, as the file has it."""

    about: dict[str, Any]
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Reads the file. Raises UserError where it is no such evidence."""
        try:
            document = json.loads(data)
            rows = tuple(Row(**row) for row in document.pop("artifacts"))
            if document["schema"] != SCHEMA:
                raise ValueError
            return cls(document, rows)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{PATH}: is no evidence of schema {SCHEMA}: bazel run //releases/ledger:rebuild") from None

    def encode(self) -> bytes:
        """The file's bytes."""
        document = {**self.about, "artifacts": [vars(row) for row in self.rows]}
        return (json.dumps(document, indent=1) + "\n").encode()
