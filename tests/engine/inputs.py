"""What the tests of an image are given: paths in environment variables, which //tests/engine's targets set."""

import importlib
import importlib.metadata
import os
import shutil
import tarfile
from pathlib import Path


class MissingInputError(Exception):
    """An environment variable that names an input is unset, or names nothing."""


def paths(variable: str) -> list[Path]:
    """The files or folders that `variable` names, separated by spaces and relative to the working folder.

    Raises:
        MissingInputError: one line that names the variable.
    """
    values = os.environ.get(variable, "").split()
    if not values:
        raise MissingInputError(f"{variable} is not set; run the tests through Bazel, or set it to a path")
    for value in values:
        if not Path(value).exists():
            raise MissingInputError(f"{variable}: {value} does not exist; build it, or name another path")
    return [Path(value).absolute() for value in values]


def path(variable: str) -> Path:
    """The one file or folder that `variable` names.

    Raises:
        MissingInputError: one line that names the variable.
    """
    values = paths(variable)
    if len(values) != 1:
        raise MissingInputError(f"{variable} names {len(values)} paths; one was expected")
    return values[0]


def copy_wheels(names: list[str], target: Path) -> Path:
    """Copy installed distributions, as they stand on this interpreter's path, to `target`, which is returned.

    A container sees no target of a link that leads out of what is mounted, and Bazel's trees are full of such links.
    """
    for name in names:
        for file in importlib.metadata.distribution(name).files or []:
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file():
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target / file)
    return target


def copy_package(name: str, target: Path) -> None:
    """Copy the modules of a package of this tree, as they stand on this interpreter's path, to `target`."""
    folder = target.joinpath(*name.split("."))
    folder.mkdir(parents=True)
    for place in importlib.import_module(name).__path__:
        for source in Path(place).glob("*.py"):
            shutil.copyfile(source, folder / source.name)


def unpack_sdist(archive: Path, target: Path) -> Path:
    """Unpack an sdist's tests and pyproject.toml to `target`, which is returned."""
    with tarfile.open(archive) as tar:
        for member in tar:
            inner = Path(member.name.partition("/")[2])
            wanted = inner.parts[:1] in (("pyproject.toml",), ("tests",)) and ".." not in inner.parts
            if wanted and (contents := tar.extractfile(member)):
                (target / inner).parent.mkdir(parents=True, exist_ok=True)
                (target / inner).write_bytes(contents.read())
    return target
