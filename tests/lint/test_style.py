"""The working tree against its linters: ruff, mypy and buildifier, with the settings in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ruff

from tests.lint.working_tree import ROOT, tree

# All of buildifier's, less two that do not fit macros of WORKSPACE and of data files.
WARNINGS = "-positional-args,-unnamed-macro"


def script(module: object, name: str) -> Path:
    """Returns a program that an unpacked wheel brings under .data/scripts."""
    site = Path(str(module.__file__)).parent.parent  # type: ignore[attr-defined]
    return next(site.glob(f"*.data/scripts/{name}"))


def run(*command: str | Path) -> None:
    """Runs a linter in the tree; its own words are the failure."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(done.stdout, pytrace=False)


def test_ruff(tmp_path: Path) -> None:
    run(script(ruff, "ruff"), "check", "--cache-dir", tmp_path, *tree("*.py"))


def test_mypy(tmp_path: Path) -> None:
    # Step tests import vLLM, which is not among the tools.
    files = [path for path in tree("*.py") if not path.startswith("patches/vllm-")]
    # mypy asks the interpreter for its search path, and so finds the pinned wheels' own types.
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry.endswith("/site"))
    run(sys.executable, "-m", "mypy", "--cache-dir", tmp_path, *files)


def test_buildifier() -> None:
    files = tree("BUILD.bazel", "*/BUILD.bazel", "*.bzl", "WORKSPACE")
    program = Path("external/buildifier/package/buildifier-linux_amd64").resolve()
    run(program, "-mode=check", "-lint=warn", f"-warnings={WARNINGS}", *files)
