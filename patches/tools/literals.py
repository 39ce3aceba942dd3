"""What a BUILD or .bzl file writes as plain data, read without running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patches.engine.errors import PatchError


@dataclass(frozen=True)
class Call:
    """A call by keywords in a file of data. `place` is file and line, for messages."""

    place: str
    _arguments: dict[str, ast.expr]

    def has(self, name: str) -> bool:
        """Whether the argument is given."""
        return name in self._arguments

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """An argument's value, of the type (or union of types) `kind`; `default` where it is not given.

        Raises PatchError where it is no literal, or of another type: what it is only Bazel knows then.
        """
        if name not in self._arguments:
            return default
        try:
            value = ast.literal_eval(self._arguments[name])
        except ValueError:
            what = f"{self.place}: {name} is computed: write it out, or name a manifest with --manifest"
            raise PatchError(what) from None
        if not isinstance(value, kind):
            raise PatchError(f"{self.place}: {name} is {value!r}: expected {getattr(kind, '__name__', kind)}")
        return value


def calls(path: Path, function: str) -> list[Call]:
    """Every call of `function` in a BUILD or .bzl file, in order. Raises PatchError if it cannot be read."""
    found: list[Call] = []
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            arguments = {word.arg: word.value for word in node.keywords if word.arg is not None}
            found.append(Call(f"{path}:{node.lineno}", arguments))
    return sorted(found, key=lambda call: int(call.place.rpartition(":")[2]))


def assigned(path: Path, variable: str) -> Any:
    """The literal that a .bzl file gives to `variable`; None if it does not. Raises PatchError if it is none."""
    for name, value in _assignments(_parse(path)):
        if name == variable:
            try:
                return ast.literal_eval(value)
            except ValueError:
                raise PatchError(f"{path}: {variable} is not plain data") from None
    return None


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise PatchError(f"{path}: cannot be read ({error.strerror})") from None
    except (SyntaxError, ValueError) as error:
        raise PatchError(f"{path}: cannot be read as Starlark ({error})") from None
