"""Where a patch series lies, which wheel it is for, and which lines use it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patches.engine.errors import PatchError
from patches.engine.series import SERIES
from patches.tools import literals
from patches.tools.steps import Step, of_line, of_manifest

_WHEEL = re.compile(r"@(?P<repository>pypi_(?P<rest>\w+))//:file")


@dataclass(frozen=True)
class Pin:
    """A locked wheel: `repository` is Bazel's for it, `size` is in bytes, `lock` the file that states it."""

    project: str
    version: str
    file: str
    sha256: str
    size: int
    repository: str
    lock: str


@dataclass(frozen=True)
class Place:
    """A series: its `folder` in the tree, its `pin`, the `lines` that use it, and their `steps`.

    `root` is the source tree; `shown` is the folder as people name it.
    """

    root: Path
    folder: Path
    pin: Pin
    lines: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """The folder's name: project and version."""
        return self.folder.name

    @property
    def shown(self) -> str:
        """The folder from the tree's root."""
        return self.folder.relative_to(self.root).as_posix()

    def owners(self, patch: str) -> tuple[Step, ...]:
        """The steps that have the patch: one a line, where all is well."""
        return tuple(step for step in self.steps if patch in step.patches)

    def tests(self, patch: str) -> tuple[str, ...]:
        """The files that test the patch, from the tree's root."""
        path = self.folder / "tests" / test_name(patch)
        return (path.relative_to(self.root).as_posix(),) if path.is_file() else ()


def test_name(patch: str) -> str:
    """The name of the file that tests a patch."""
    return f"test_{patch.removesuffix('.patch').replace('-', '_')}.py"


def find(
    root: Path, line: str | None = None, series: str | None = None, manifests: Sequence[Path] = ()
) -> Place:
    """The series of a line, or of that name, or the only one of the tree.

    With `manifests`, steps are theirs instead of those that line.bzl states. Raises PatchError where there is
    none, there are several to choose from, or its wheel is not locked.
    """
    users = _users(root)
    # A draft that a killed writer left has a series too.
    every = sorted(path.parent.name for path in (root / "patches").glob(f"[!.]*/{SERIES}"))
    if not every:
        raise PatchError(f"{root / 'patches'}: has no series: expected patches/<project>-<version>/{SERIES}")
    if line is not None and line not in users:
        listed = ", ".join(sorted(users)) or "none"
        raise PatchError(f"{line}: no such line with patches: expected one of {listed}")
    chosen = _choose(every, users, line, series)
    lines = tuple(name for name, used in sorted(users.items()) if used == chosen and line in (None, name))
    if manifests:
        stated = [step for path in manifests for step in of_manifest(path)]
    else:
        stated = [step for name in lines for step in of_line(root / "images" / name / "line.bzl", name)]
    folder = root / "patches" / chosen
    return Place(root, folder, _pin(root, folder), lines, tuple(stated))


def _choose(every: list[str], users: dict[str, str], line: str | None, series: str | None) -> str:
    if series is not None:
        if series not in every:
            raise PatchError(f"{series}: no such series in patches: expected one of {', '.join(every)}")
        if line is not None and users[line] != series:
            raise PatchError(f"line {line} uses the series {users[line]}, not {series}: name one of the two")
        return series
    if line is not None:
        if users[line] not in every:
            raise PatchError(f"line {line} uses patches/{users[line]}, which has no {SERIES}")
        return users[line]
    if len(every) > 1:
        raise PatchError(f"there are several series: name one with --series: {', '.join(every)}")
    return every[0]


def _users(root: Path) -> dict[str, str]:
    """The series of every line, by the overlay that its BUILD file names."""
    found: dict[str, str] = {}
    for path in sorted((root / "images").glob("*/BUILD.bazel")):
        if not (path.parent / "line.bzl").is_file():
            continue
        for call in literals.calls(path, "serving_image"):
            label = call.get("overlay", str, "")
            if label.startswith("//patches/"):
                found[path.parent.name] = label.removeprefix("//patches/").partition(":")[0]
    return found


def _pin(root: Path, folder: Path) -> Pin:
    build = folder / "BUILD.bazel"
    overlays = literals.calls(build, "patch_overlay")
    if not overlays:
        raise PatchError(f"{build}: has no patch_overlay(): it says which wheel the series is for")
    label = overlays[0].get("wheel", str, "")
    match = _WHEEL.fullmatch(label)
    project, _, version = folder.name.rpartition("-")
    if match is None:
        raise PatchError(f"{overlays[0].place}: wheel = {label!r}: expected @pypi_<closure>_<project>//:file")
    for lock in sorted((root / "third_party/python").glob("*.lock.bzl")):
        closure = lock.name.removesuffix(".lock.bzl")
        wheels: dict[str, dict[str, Any]] = literals.assigned(lock, "WHEELS") or {}
        for name, entry in wheels.items():
            if match["rest"] == f"{closure}_{name.replace('-', '_').replace('.', '_')}":
                shown = lock.relative_to(root).as_posix()
                if entry["version"] != version:
                    raise PatchError(
                        f"{folder.name}: {shown} locks {name} {entry['version']}: patch tools work on the locked "
                        f"version; bazel run //third_party/python:lock -- {closure} locks another"
                    )
                return Pin(
                    project=name,
                    version=entry["version"],
                    file=entry["file"],
                    sha256=entry["sha256"],
                    size=entry["size"],
                    repository=match["repository"],
                    lock=shown,
                )
    raise PatchError(f"{folder.name}: {label} is in no lock of third_party/python: lock {project} {version} first")
