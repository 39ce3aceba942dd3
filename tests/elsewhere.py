"""A second build of this tree: another folder, another output base, another environment, no network."""

import contextlib
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Brings up loopback, which Bazel's client and server talk over, in a network namespace that has
# nothing else.
_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))
os.execvp(sys.argv[1], sys.argv[1:])
"""


def copy_tree(root: Path, dest: Path) -> None:
    """Copies the files that git tracks, or would, from `root` to `dest`, and the options that bazelw chose."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    for name in [".bazelrc.local", *done.stdout.decode().rstrip("\0").split("\0")]:
        if (root / name).is_file():
            (dest / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, dest / name)


def repository_cache() -> Path:
    """Returns Bazel's default repository cache of this user."""
    user = pwd.getpwuid(os.getuid())
    return Path(user.pw_dir, ".cache/bazel", f"_bazel_{user.pw_name}", "cache/repos/v1")


class BuildError(Exception):
    """Bazel failed; the message is all that it said."""


class Elsewhere:
    """A copy of the tree at `folder`, a Bazel server and an environment of its own; made by elsewhere()."""

    def __init__(self, folder: Path, output_base: Path, network: bool) -> None:
        self.folder = folder
        self._output_base = output_base
        self._network = network
        # Whatever could leak into an output differs from the first build's.
        self.env = {
            "HOME": str(folder.parent),
            "LANG": "C",
            "PATH": os.environ["PATH"],
            "TZ": "Pacific/Chatham",
            "USER": "somebody-else",
        }

    def bazel(self, *arguments: str) -> str:
        """Runs Bazel and returns its stdout; its stderr is the failure."""
        command = ["bazel", f"--output_base={self._output_base}", *arguments]
        if not self._network:
            map_user = [] if os.getuid() == 0 else ["--map-root-user"]
            command = ["unshare", "--net", *map_user, sys.executable, "-c", _LOOPBACK, *command]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(done.stderr)
        return done.stdout

    def build(self, *targets: str) -> Path:
        """Builds the targets and returns the folder of their outputs."""
        self.bazel("build", f"--repository_cache={repository_cache()}", *targets)
        return Path(self.bazel("info", "bazel-bin").strip())


@contextlib.contextmanager
def elsewhere(root: Path, network: bool = False) -> Iterator[Elsewhere]:
    """Copies the tree at `root`, and removes everything that was built of the copy in the end."""
    # Beside the cache: .bazelrc has Bazel link its files, which works within one file system alone.
    beside = repository_cache().parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="moet-elsewhere-", dir=beside) as temporary:
        folder = Path(temporary, "a-folder-of-another-name/and-depth")
        folder.mkdir(parents=True)
        copy_tree(root, folder)
        output_base = Path(temporary, "output")
        made = Elsewhere(folder, output_base, network)
        umask = os.umask(0o077)
        try:
            yield made
        finally:
            os.umask(umask)
            with contextlib.suppress(BuildError):
                made.bazel("shutdown")
            # Bazel writes its outputs without the right to change their folders.
            for path, _, _ in os.walk(output_base):
                os.chmod(path, 0o755)


def digests(path: Path) -> dict[str, str]:
    """Returns the SHA-256 of a file, or of each file below a folder, by its path in it."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    result = {}
    for file in files:
        with file.open("rb") as data:
            result[str(file.relative_to(path))] = hashlib.file_digest(data, "sha256").hexdigest()
    return result
