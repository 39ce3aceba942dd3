"""An edit of one line of one patch, and its undoing."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.programs import BenchError, run

# A comment that the patch adds: longer or shorter, it leaves the hunk's counts and the code's meaning alone.
_COMMENT = re.compile(r"\+\s*# .*\w")


class Edit:
    """The line of a patch that is edited, and the patch as it was."""

    def __init__(self, patch: Path) -> None:
        self.patch = patch
        self._original = patch.read_text()
        self._lines = self._original.splitlines(keepends=True)
        self._at = _comment(self._lines)
        if self._at is None:
            raise BenchError(f"{patch}: adds no line that is a comment, so there is none to edit without harm")

    def apply(self, mark: str) -> None:
        """Ends the line with `mark`, whatever it ended with before."""
        lines = list(self._lines)
        assert self._at is not None
        lines[self._at] = f"{lines[self._at].rstrip()} {mark}\n"
        _replace(self.patch, "".join(lines))

    def undo(self) -> None:
        """Gives the patch its bytes back."""
        _replace(self.patch, self._original)


@contextmanager
def undone(root: Path, folder: Path) -> Iterator[Edit]:
    """An Edit of the last patch of the series in `folder`, undone at the end.

    The last, so that no patch after it has the line among its context. `folder` is relative to the workspace `root`.

    Raises:
        BenchError: no git, changes that are not committed, or nothing to edit; at the end, that the edit was committed.
    """
    _check(root, folder, f"commit or stash it; an edit of a killed benchmark goes with: git checkout {folder}")
    names = [line.strip() for line in (root / folder / "series").read_text().splitlines()]
    edit = Edit(root / folder / [name for name in names if name and not name.startswith("#")][-1])
    try:
        yield edit
    finally:
        edit.undo()
    _check(root, folder, "a commit made while the benchmark's edit was in place has it; commit the folder again")


def _check(root: Path, folder: Path, advice: str) -> None:
    changed = run(["git", "status", "--porcelain", "--", folder], folder=root).strip()
    if changed:
        raise BenchError(f"{folder} is not as committed ({changed.splitlines()[0].strip()}); {advice}")


def _comment(lines: list[str]) -> int | None:
    return next((number for number, line in reversed(list(enumerate(lines))) if _COMMENT.match(line)), None)


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    shutil.copymode(path, beside)
    os.replace(beside, path)
