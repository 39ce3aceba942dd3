"""The files of the working tree, which is what a person edits."""

import subprocess
from pathlib import Path

# Runfiles are links into the working tree.
ROOT = Path("bazelw").resolve().parent


def tree(*patterns: str) -> list[str]:
    """Returns the files that git tracks, or would, below these patterns."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for path in done.stdout.splitlines() if (ROOT / path).exists()]
