"""Image tags: `<line>:<base><version>-r<N>`, with `-dev` after it where the image is no release."""

import re
from dataclasses import dataclass
from typing import Self

from images.oci.names import REPOSITORY
from tools.cli.errors import UserError

_TAG = re.compile(rf"(?P<line>{REPOSITORY.pattern}):(?P<base>[A-Za-z0-9_][A-Za-z0-9_.]*)-r(?P<n>0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Tag:
    """A release's tag. `base` is name and version together ("vllm0.33.0"), `number` the N of -r<N>."""

    line: str
    base: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a tag. Raises UserError where it is none."""
        found = _TAG.fullmatch(text)
        if not found:
            raise UserError(f"{text!r} is no release's tag: expected LINE:BASE-rN, for example dsv41:vllm0.33.0-r1")
        return cls(found["line"], found["base"], int(found["n"]))

    @property
    def name(self) -> str:
        """What follows the colon; the tag within a repository."""
        return f"{self.base}-r{self.number}"

    @property
    def git(self) -> str:
        """The git tag that stands for it; git allows no colon."""
        return f"{self.line}/{self.name}"

    def __str__(self) -> str:
        return f"{self.line}:{self.name}"
