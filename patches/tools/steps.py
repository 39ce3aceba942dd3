"""The numbered steps of a line, from images/<line>/line.bzl or from a built manifest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.manifest import model
from patches.engine.errors import PatchError
from patches.tools import literals


@dataclass(frozen=True)
class Step:
    """A step as its line has it; `patches` and `kernels` are names, `switch` is None where it has none."""

    line: str
    number: int
    name: str
    patches: tuple[str, ...]
    switch: str | None
    default: str
    drop_when: str
    kernels: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """What reports say of the step."""
        return {
            "line": self.line,
            "number": self.number,
            "name": self.name,
            "switch": self.switch,
            "default": self.default,
            "drop_when": self.drop_when,
        }

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


def of_line(path: Path, line: str) -> list[Step]:
    """The steps that a line.bzl states. Raises PatchError where one is not written out as plain data."""
    return [_step(call, line) for call in literals.calls(path, "step")]


def of_manifest(path: Path) -> list[Step]:
    """The steps of a manifest.json, such as Bazel builds and a release keeps. Raises PatchError if it is none."""
    try:
        manifest = model.decode(model.Manifest, model.loads(path.read_bytes()))
    except OSError as error:
        raise PatchError(f"{path}: cannot be read ({error.strerror})") from None
    except model.DataError as error:
        raise PatchError(f"{path}: is no manifest of Moet's: {error}") from None
    return [
        Step(
            line=manifest.line,
            number=step.number,
            name=step.name,
            patches=step.patches,
            switch=step.switch,
            default=step.default,
            drop_when=step.drop_when,
            kernels=step.kernels,
        )
        for step in manifest.steps
    ]


def _step(call: literals.Call, line: str) -> Step:
    missing = [name for name in ("number", "name") if not call.has(name)]
    if missing:
        raise PatchError(f"{call.place}: a step without {missing[0]}: give it one by keyword")
    return Step(
        line=line,
        number=call.get("number", int),
        name=call.get("name", str),
        patches=tuple(call.get("patches", list, [])),
        switch=call.get("switch", str | None),
        default=call.get("default", str, "1"),
        drop_when=call.get("drop_when", str, ""),
        kernels=tuple(call.get("kernels", list, [])),
    )
