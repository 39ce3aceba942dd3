"""Running a command where a release was made: in a clean folder with its commit's files, with a Bazel of its own."""

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from releases.tree import build
from releases.tree.git import Git
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Place:
    """`folder` to run in, what to add to the environment, and paths that the output should not show."""

    folder: Path
    environment: dict[str, str]
    places: dict[Path, str]


@contextmanager
def place(git: Git, commit: str) -> Iterator[Place]:
    """A folder with the files of `commit`; `bazel` and ./bazelw there use an output base that goes with it.

    Raises UserError where the commit or Bazel is not here.
    """
    if git.resolve(commit) is None:
        raise UserError(f"commit {commit} is not in this clone: git fetch it")
    with build.elsewhere(git, commit) as workspace:
        bazel = shutil.which(os.environ.get("BAZEL", "bazel"))
        if bazel is None:
            raise UserError("bazel is not on PATH; ./bazelw build //images:dsv41 installs it")
        programs = workspace.root.parent / "bin"
        programs.mkdir()
        wrapper = programs / "bazel"
        options = shlex.join([bazel, f"--output_base={workspace.output_base}"])
        # Bazel takes --version only as its first argument.
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" != --version ] || exec {shlex.quote(bazel)} --version\nexec {options} "$@"\n'
        )
        wrapper.chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        places = {workspace.root: "<tree>", workspace.output_base: "<output base>"}
        yield Place(workspace.root, {"PATH": path, "BAZEL": str(wrapper)}, places)
