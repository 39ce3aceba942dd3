"""What a form is rendered to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A file by name, its text, and whether it is to be executable."""

    name: str
    text: str
    executable: bool = False
