"""Who is told how far a long walk is."""

from typing import Protocol


class Progress(Protocol):
    """A listener; tools.cli.output.Bar is one."""

    def start(self, what: str, total: int) -> None:
        """A phase of `total` bytes begins; 0: nobody knows."""

    def advance(self, amount: int) -> None:
        """`amount` more bytes are done."""
