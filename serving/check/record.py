"""The receipt of a check: what it said, of which image, on which hardware."""

from collections.abc import Sequence
from pathlib import Path

from releases.receipts import receipt
from releases.receipts.receipt import Start, Subject
from releases.tree.git import Git
from serving.check.target import Target
from tools.cli.errors import UserError

UNKNOWN = "unknown"


class Record:
    """A receipt to be written.

    Args:
        root: the source tree.
        out: the new file, below docs/evidence.
        target: the server.
        command: what is run, as a person would.

    Raises UserError where there can be no receipt, before anything is measured.
    """

    def __init__(self, root: Path, out: Path, target: Target, command: Sequence[str]) -> None:
        if not target.local:
            raise UserError(
                f"--receipt: {target.api.base_url} is not this host, whose hardware a receipt states: run it there"
            )
        self._root, self._path = root, receipt.place(root, out)
        self._target, self._command = target, command
        self._start: Start = receipt.start(Git(root))

    def write(self, output: str) -> str:
        """Writes the receipt of a check that succeeded; returns its path from the root of the tree."""
        digest = self._target.digest
        subject = Subject(self._target.tag if digest else None, digest or UNKNOWN)
        made = receipt.finish(self._root, self._start, subject, self._command, 0, output)
        receipt.write(self._path, made)
        root = self._root.resolve()
        return str(self._path.relative_to(root) if self._path.is_relative_to(root) else self._path)
