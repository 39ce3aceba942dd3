"""The one exception of whatever talks to a registry."""

from tools.cli.errors import UserError


class RegistryError(UserError):
    """A registry refused, was not reached, or sent something else than it should: one line that says what to do.

    `again`: the fault may pass by itself, so that whoever sent the request may send it once more. The message may
    quote what a registry sent: of that, nothing reaches a terminal but text.
    """

    def __init__(self, message: str, again: bool = False) -> None:
        super().__init__(printable(message))
        self.again = again


def printable(text: str) -> str:
    """`text` on one line, with a ? in place of whatever is no character to read."""
    return "".join(mark if mark.isprintable() else "?" for mark in text)
