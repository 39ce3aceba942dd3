"""What an overlay's Python files say of switches, held against the steps.

The report of live steps is only as true as the defaults in the manifest: they must be the code's.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from images.manifest import inputs, model, names

_GETTERS = ("getenv", "get")


@dataclass(frozen=True)
class Read:
    """A place that names a switch; `default` is what counts where it is not set, None where none is given."""

    switch: str
    path: str
    line: int
    default: str | None


def problems(manifest: model.Manifest, overlay: inputs.Overlay, folder: Path) -> list[str]:
    """Every switch that the overlay's files read otherwise than the manifest's steps have it, one line each.

    `folder` holds the overlay's files. Raises ManifestError for a file that is no Python.
    """
    found = [read for file in overlay.files for read in _reads(folder, file.path)]
    steps = {step.switch: step for step in manifest.steps}
    lines = []
    for read in found:
        step = steps.get(read.switch)
        place = f"{read.path}:{read.line}"
        if step is None:
            lines.append(f"switch {read.switch}: {place} reads it, but no step has it: give it to one")
        elif read.default is not None and read.default != step.default:
            lines.append(
                f"switch {read.switch}: {place} takes {read.default} where it is not set, "
                f"step {step.name} says {step.default}: make both the same"
            )
    named = {read.switch for read in found}
    unread = (patch for patch in overlay.patches if patch.switch not in {None, *named})
    return lines + [f"switch {patch.switch}: no changed file reads it, {patch.name} must" for patch in unread]


def _reads(folder: Path, path: str) -> Iterator[Read]:
    if not path.endswith(".py"):
        return
    try:
        tree = ast.parse((folder / path).read_bytes(), path)
    except OSError as error:
        raise inputs.ManifestError(f"{folder}/{path}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        raise inputs.ManifestError(
            f"{path}:{error.lineno}: no Python after the patches: {error.msg}"
        ) from None
    except ValueError as error:
        raise inputs.ManifestError(f"{path}: no Python after the patches: {error}") from None
    defaults = {
        node.args[0]: _text(node.args[1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) == 2 and _name(node.func) in _GETTERS
    }
    for node in ast.walk(tree):
        text = _text(node)
        if text is not None and isinstance(node, ast.expr) and not names.switch_problem(text):
            yield Read(text, path, node.lineno, defaults.get(node))


def _name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
