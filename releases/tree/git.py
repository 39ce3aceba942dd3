"""What is asked of git, and the few things that are told it."""

import datetime
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cli.errors import UserError


class GitError(UserError):
    """git failed, or the folder is not what was expected of it."""


class Git:
    """The repository that the folder `root` is the work tree of."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def head(self) -> str:
        """The commit that is checked out, 40 hex digits. Raises GitError where there is none."""
        commit = self.resolve("HEAD")
        if commit is None:
            raise GitError(f"{self.root}: no commit is checked out here; a release is of one: git commit first")
        return commit

    def branch(self) -> str | None:
        """The branch that is checked out; None on a detached HEAD."""
        return self._line("symbolic-ref", "--quiet", "--short", "HEAD")

    def resolve(self, revision: str) -> str | None:
        """The commit that `revision` names, 40 hex digits; None where it names none here."""
        return self._line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")

    def dirty(self) -> list[str]:
        """Paths that differ from the commit or are not in it, as git status lists them; ignored ones are not."""
        listed = self._run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
        return [entry[3:] for entry in listed.decode(errors="surrogateescape").split("\0") if entry]

    def is_shallow(self) -> bool:
        """Whether the clone lacks history."""
        return self._line("rev-parse", "--is-shallow-repository") == "true"

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `older` is `newer` or comes before it."""
        return self._status("merge-base", "--is-ancestor", older, newer) == 0

    def commit_time(self, commit: str) -> datetime.datetime:
        """The committer's time, in UTC."""
        seconds = self._run("show", "--no-patch", "--format=%ct", commit).decode().strip()
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)

    def show(self, commit: str, path: str) -> bytes | None:
        """A file of a commit; None where it has none of that path."""
        done = self._call("cat-file", "blob", f"{commit}:{path}")
        return None if done.returncode else done.stdout

    def files(self, commit: str, folder: str = "") -> list[str]:
        """The paths of a commit's files below `folder`."""
        listed = self._run("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", folder or ".")
        return [name for name in listed.decode(errors="surrogateescape").split("\0") if name]

    def revisions(self, path: str) -> list[str]:
        """The commits reachable from HEAD that changed `path`, newest first; also those of merged branches."""
        listed = self._run("log", "--format=%H", "--full-history", "HEAD", "--", path)
        return listed.decode().split()

    def tag_commit(self, name: str) -> str | None:
        """The commit that a git tag points to; None where there is no such tag."""
        return self.resolve(f"refs/tags/{name}")

    def create_tag(self, name: str, commit: str, message: str) -> None:
        """Makes an annotated tag; leaves one that is at `commit` already. Raises GitError where it is elsewhere."""
        found = self.tag_commit(name)
        if found == commit:
            return
        if found is not None:
            raise GitError(f"git tag {name} points to {found}, {commit} was expected: tags are never moved")
        self._run("tag", "--annotate", "--message", message, name, commit)

    def folder(self) -> Path:
        """The folder inside .git for what belongs to the work tree and is no file of it."""
        return Path(self._run("rev-parse", "--absolute-git-dir").decode().rstrip("\n"))

    @contextmanager
    def worktree(self, commit: str, parent: Path | None = None) -> Iterator[Path]:
        """A new folder (below `parent`) with the files of `commit`; removed at the end, changes and all."""
        with tempfile.TemporaryDirectory(prefix="moet-worktree-", dir=parent, ignore_cleanup_errors=True) as made:
            folder = Path(made, "tree")
            try:
                self._run("worktree", "add", "--quiet", "--detach", str(folder), commit)
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                self.prune()

    def prune(self) -> None:
        """Forgets work trees of which the folder is gone."""
        self._status("worktree", "prune")

    def _line(self, *arguments: str) -> str | None:
        done = self._call(*arguments)
        return None if done.returncode else done.stdout.decode().strip() or None

    def _status(self, *arguments: str) -> int:
        return self._call(*arguments).returncode

    def _run(self, *arguments: str) -> bytes:
        done = self._call(*arguments)
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split()) or f"exit status {done.returncode}"
            raise GitError(f"{self.root}: git {arguments[0]}: {said}")
        return done.stdout

    def _call(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        # A hook or an alias hands down variables that would name another repository.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {name: value for name, value in os.environ.items() if name.startswith("GIT_CONFIG")}
        environment["LC_ALL"] = "C"
        try:
            return subprocess.run(
                ["git", "-C", str(self.root), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            raise GitError("git is not on PATH; install it: apt-get install git") from None
