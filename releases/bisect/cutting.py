"""A source tree without some of a line's steps: line.bzl and the patch series are cut to the rest."""

import ast
from collections.abc import Collection, Sequence
from pathlib import Path

from images.manifest import model
from releases.tree import line_data
from tools.cli.errors import UserError


class Cut:
    """A work tree of a commit that may be changed, and put back."""

    def __init__(self, root: Path, manifest: model.Manifest) -> None:
        """Reads the tree at `root`, of the commit that the image of `manifest` was built from. Raises UserError."""
        self._line = root / line_data.path(manifest.line)
        self._steps = manifest.steps
        self._folders = [root / "patches" / f"{one.project}-{one.version}" for one in manifest.overlays]
        paths = [self._line, *(path for folder in self._folders for path in _patch_files(folder))]
        try:
            self._whole = {path: path.read_bytes() for path in paths}
        except OSError as error:
            raise UserError(f"{error.filename}: {error.strerror}: the commit has other folders than expected") from None

    def without(self, off: Collection[int]) -> None:
        """Takes the steps of these numbers out of the tree; all others are in it, as committed."""
        gone = {name for step in self._steps if step.number in off for name in step.patches}
        for path, data in self._whole.items():
            if path == self._line:
                path.write_text(without_steps(data.decode(), off, str(path)))
            elif path.name == "series":
                path.write_text(without_patches(data.decode(), gone))
            elif path.name in gone:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)


def without_steps(text: str, off: Collection[int], where: str) -> str:
    """The text of a line.bzl without the step(...) of these numbers. Raises UserError where one is missing."""
    try:
        calls = {_number(call): call for call in ast.walk(ast.parse(text)) if isinstance(call, ast.Call)}
    except SyntaxError as error:
        raise UserError(f"{where}:{error.lineno}: cannot be read as data: {error.msg}") from None
    lines = text.split("\n")
    for number in sorted(off, reverse=True):
        call = calls.get(number)
        if call is None:
            raise UserError(f"{where}: has no step(number = {number}, ...)")
        last = call.end_lineno or call.lineno
        for index in range(call.lineno - 1, last):
            lines[index] = ""
        # Starlark's list does not mind the empty lines, but would the comma.
        if last < len(lines) and lines[last].strip() == ",":
            lines[last] = ""
    return "\n".join(lines)


def without_patches(text: str, gone: Collection[str]) -> str:
    """The text of a series file without these patches."""
    return "".join(line for line in text.splitlines(keepends=True) if line.split("#")[0].strip() not in gone)


def _number(call: ast.Call) -> int | None:
    if isinstance(call.func, ast.Name) and call.func.id == "step":
        for word in call.keywords:
            if word.arg == "number" and isinstance(word.value, ast.Constant) and isinstance(word.value.value, int):
                return word.value.value
    return None


def _patch_files(folder: Path) -> Sequence[Path]:
    return [folder / "series", *sorted(folder.glob("*.patch"))]
