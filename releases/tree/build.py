"""Building images: in the tree, and of any commit in a clean folder with an output base of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from releases.tag import Tag
from releases.tree.git import Git
from tools.cli.errors import UserError
from tools.files import lock

_PREFIX = "moet-release-"
_MAKING = "moet-release.lock"
_SWEEP_SECONDS = 600
# The server of a build that was killed goes by itself.
_IDLE_SECONDS = 120
# What `bazel run` and `bazel test` hand down to a program, and a build inside of it must not see.
_INHERITED = ("BUILD_", "RUNFILES_", "PYTHON", "TEST_", "GIT_")


class BuildError(UserError):
    """Bazel failed; what it said was on stderr."""


def target(tag: Tag) -> str:
    """The Bazel label of a release's image: r0 is the pinned upstream without steps."""
    return f"//images/{tag.line}:{tag.line}" + (".base" if tag.number == 0 else "")


def built(root: Path, tag: Tag, *, release: bool = True, output_base: Path | None = None) -> Path:
    """Builds a release's image in the tree `root` and returns its layout where Bazel has it, until its next build.

    With `release`, it is stamped with the commit, and a tree with changes is refused. Raises BuildError.
    """
    label = target(tag)
    folder = build(root, [label], release=release, output_base=output_base)
    package, _, name = label.removeprefix("//").partition(":")
    return folder / package / name


def build(root: Path, targets: Sequence[str], *, release: bool = False, output_base: Path | None = None) -> Path:
    """Builds targets in the tree `root` and returns the folder of their outputs. Bazel reports on stderr.

    Raises BuildError.
    """
    options = ["--config=release"] if release else []
    run(root, ["build", *options, *targets], output_base)
    return Path(run(root, ["info", *options, "bazel-bin"], output_base, quiet=True).strip())


def run(root: Path, arguments: Sequence[str], output_base: Path | None = None, quiet: bool = False) -> str:
    """Runs bazelw of the tree `root` and returns its stdout; stderr goes to ours, unless it is to be `quiet`.

    Raises BuildError.
    """
    startup = [f"--output_base={output_base}", f"--max_idle_secs={_IDLE_SECONDS}"] if output_base else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_INHERITED)}
    try:
        done = subprocess.run(
            [str(root / "bazelw"), *startup, *arguments],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            check=False,
        )
    except OSError as error:
        raise BuildError(f"{root / 'bazelw'}: {error.strerror}: is {root} Moet's source tree?") from None
    if done.returncode:
        # Without a command's name, startup options and labels say little.
        what = " ".join(arguments)
        said = f": {done.stderr.strip().splitlines()[-1]}" if quiet and done.stderr.strip() else ", see above"
        raise BuildError(f"bazel {what} failed with exit status {done.returncode}{said}")
    return done.stdout


@dataclass(frozen=True)
class Workspace:
    """A commit's files in a folder of their own, built into an output base of its own; made by elsewhere()."""

    root: Path
    output_base: Path

    def built(self, tag: Tag) -> Path:
        """Builds a release's image, stamped, and returns its layout, which goes with the workspace."""
        return built(self.root, tag, output_base=self.output_base)

    def build(self, *targets: str) -> Path:
        """Builds targets, not stamped, and returns the folder of their outputs. Raises BuildError."""
        return build(self.root, targets, output_base=self.output_base)


@contextmanager
def elsewhere(git: Git, commit: str) -> Iterator[Workspace]:
    """A clean folder with the files of `commit` and an empty output base, both removed at the end.

    What an earlier one left, that was killed, is removed first. Raises GitError where the commit is not here.
    """
    beside = _beside_repository_cache()
    with _terminable(), contextlib.ExitStack() as stack:
        # A folder that nobody holds is left over; so none may be seen between being made and being held.
        with lock.exclusive(beside / _MAKING, _SWEEP_SECONDS):
            _remove_stale(git, beside)
            made = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside))
            stack.callback(_remove, made)
            stack.enter_context(lock.exclusive(made / "lock"))
        root = stack.enter_context(git.worktree(commit, made))
        output_base = made / "output"
        stack.callback(_shut_down, root, output_base)
        yield Workspace(root, output_base)


def tidy(git: Git) -> None:
    """Removes what elsewhere() left where it was killed."""
    beside = _beside_repository_cache()
    if beside.is_dir():
        _remove_stale(git, beside)


def _beside_repository_cache() -> Path:
    """Bazel's own place for caches: .bazelrc has it link their files, which works within one file system alone."""
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    user = os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    return Path(home, ".cache/bazel", f"_bazel_{user}", "cache")


def _remove_stale(git: Git, beside: Path) -> None:
    for folder in beside.glob(f"{_PREFIX}*"):
        with contextlib.suppress(UserError, OSError), lock.exclusive(folder / "lock"):
            _remove(folder)
    git.prune()


def _remove(folder: Path) -> None:
    # Bazel writes its outputs without the right to change their folders.
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(path, 0o755)
    shutil.rmtree(folder, ignore_errors=True)


def _shut_down(root: Path, output_base: Path) -> None:
    with contextlib.suppress(BuildError):
        run(root, ["shutdown"], output_base, quiet=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """Unwinds on SIGTERM as on Ctrl-C, so that gigabytes do not stay behind."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
