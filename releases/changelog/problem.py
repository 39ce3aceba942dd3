"""What is wrong with CHANGELOG.md, and where."""

from collections.abc import Iterable
from dataclasses import dataclass

from tools.cli.errors import UserError

CHANGELOG = "CHANGELOG.md"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong: its line in CHANGELOG.md (1-based; 0: no line of it), and a sentence."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"{CHANGELOG}:{self.line}: {self.text}" if self.line else self.text


class ProblemsError(UserError):
    """All problems that were found, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))
