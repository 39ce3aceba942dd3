"""What attestation finds, and where a path of the image lies."""

import os
from dataclasses import dataclass
from typing import Literal

Check = Literal["manifest", "file", "record", "import", "bytecode"]


@dataclass(frozen=True)
class Mismatch:
    """A difference between the image and its manifest; `subject` is a path in the image or a module."""

    check: Check
    subject: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.found}"


def inside(root: str, path: str) -> str:
    """The host's path of the image's absolute path; `root` is "/" in the image, a folder in tests."""
    return os.path.join(root, path.lstrip("/"))
