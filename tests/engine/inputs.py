"""What the tests of an image are given: paths in environment variables, which //tests/engine's targets set."""

import importlib.metadata
import os
import shutil
import tarfile
from pathlib import Path


class MissingInputError(Exception):
    """An environment variable that names an input is unset, or names nothing."""


def path(variable: str) -> Path:
    """The file or folder that `variable` names, relative to the working folder.

    Raises:
        MissingInputError: one line that names the variable.
    """
    value = os.environ.get(variable)
    if not value:
        raise MissingInputError(f"{variable} is not set; run the tests through Bazel, or set it to a path")
    found = Path(value).resolve()
    if not found.exists():
        raise MissingInputError(f"{variable}={value} does not exist; build it, or set the variable to another path")
    return found


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


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a folder, links replaced by what they lead to, and return `target`."""
    shutil.copytree(source, target)
    return target


def unpack_sdist(archive: Path, target: Path) -> Path:
    """Unpack an sdist's tests and pyproject.toml to `target`, which is returned."""
    with tarfile.open(archive) as tar:
        for member in tar:
            inner = member.name.partition("/")[2]
            if inner == "pyproject.toml" or inner.startswith("tests/"):
                member.name = inner
                tar.extract(member, target, filter="data")
    return target
