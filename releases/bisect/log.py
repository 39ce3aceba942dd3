"""The log of a bisect: what it is over and every verdict, so that one that was stopped goes on where it was."""

import json
from pathlib import Path
from typing import Any

from releases.bisect.verdict import Judgement, Verdict
from tools.cli.errors import UserError
from tools.files import atomic

_SCHEMA = "moet.release-bisect-log.v1"


class Log:
    """Verdicts by how and state. Without a path, they are held in memory alone."""

    def __init__(self, path: Path | None, subject: dict[str, Any]) -> None:
        """Reads the log at `path`, if there is one.

        Args:
            path: JSON lines; made with the first verdict.
            subject: what the bisect is over, as plain data; a log of another one is refused.

        Raises:
            UserError: the file is no such log, or another bisect's.
        """
        self._path = path
        self._head = {"schema": _SCHEMA, **subject}
        self._found: dict[tuple[str, int], Judgement] = {}
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, how: str, state: int) -> Judgement | None:
        """The verdict that is known, if any."""
        return self._found.get((how, state))

    def add(self, how: str, state: int, judgement: Judgement) -> None:
        """Keeps a verdict; it is on disk at return."""
        self._found[how, state] = judgement
        if self._path is not None:
            atomic.write(self._path, "".join(f"{json.dumps(row)}\n" for row in self._rows()).encode())

    def _rows(self) -> list[dict[str, Any]]:
        return [
            self._head,
            *(
                {"how": how, "state": state, "verdict": one.verdict.value, "exit": list(one.statuses)}
                for (how, state), one in self._found.items()
            ),
        ]

    def _read(self, path: Path) -> None:
        try:
            head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
            if not isinstance(head, dict) or head.get("schema") != _SCHEMA:
                raise ValueError
            for row in rows:
                self._found[row["how"], row["state"]] = Judgement(Verdict(row["verdict"]), tuple(row["exit"]))
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}: is no log of a bisect; name another file with --log, or remove it") from None
        for key, value in self._head.items():
            if head.get(key) != value:
                was = json.dumps(head.get(key))
                raise UserError(
                    f"{path}: is of another bisect ({key} was {was}, is {json.dumps(value)}); name another file"
                )
