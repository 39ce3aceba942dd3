"""Holds the image's files against the manifest."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable

from images.manifest import model
from serving.runtime.mismatch import Mismatch, inside


def check(root: str, files: Iterable[model.File]) -> list[Mismatch]:
    """Every file that is missing, unreadable, reached through a symbolic link, or has other bytes."""
    mismatches = []
    for file in files:
        expected, found = content(file.sha256, file.size), describe(root, file.path)
        if found != expected:
            mismatches.append(Mismatch("file", file.path, expected, found))
    return mismatches


def describe(root: str, path: str) -> str:
    """What stands at an absolute path of the image: hash and size of a regular file, or why there is none."""
    folder, name = os.path.split(path)
    plain = os.path.normpath(inside(os.path.realpath(root), folder))
    real = os.path.realpath(inside(root, folder))
    if real != plain:
        return f"a symbolic link on the way, to {os.path.join(real, name)}"
    host = os.path.join(plain, name)
    try:
        with open(host, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "something that is no regular file"
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return content(digest, file.tell())
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"a symbolic link to {os.readlink(host)}"
        return f"what uid {os.geteuid()} cannot read: {error.strerror}"


def _open(path: str, flags: int) -> int:
    # O_NONBLOCK: opening a named pipe must not wait for a writer.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def content(sha256: str, size: int) -> str:
    """How the content of a regular file is written in messages; `sha256` in hex, `size` in bytes."""
    return f"sha256 {sha256} ({size} bytes)"
