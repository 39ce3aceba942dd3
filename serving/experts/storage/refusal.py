"""What the storage library refuses, each in one line."""

import errno
import os
from pathlib import Path

from tools.cli.errors import UserError


class StorageError(UserError):
    """A container that cannot be used or written as asked: what is wrong, what was expected, what to do."""


class AlreadyCompleteError(StorageError):
    """A writer was asked for what is there already, complete and with the same header."""


class DeviceError(StorageError):
    """The device did not give bytes that it holds, or did not take them."""


class DamagedError(StorageError):
    """Bytes of a record are not those that were written.

    Attributes:
        layer: the layer's number in the model.
        expert: the expert's number in the layer.
    """

    def __init__(self, message: str, layer: int, expert: int) -> None:
        super().__init__(message)
        self.layer = layer
        self.expert = expert


_ADVICE = {
    errno.EACCES: "no permission; expected a file and folder that this user may {}: mend owner or mode",
    errno.EPERM: "not permitted to {} it: mend owner, mode or attributes",
    errno.EROFS: "is on a file system mounted read-only: name another folder",
    errno.ELOOP: "is a symbolic link; expected the file itself: put the file in its place",
    errno.ENOSPC: "no space left on its file system: make room, then run the same command again",
    errno.EDQUOT: "the disk quota is used up: make room, then run the same command again",
    errno.EFBIG: "exceeds the largest file that this process or file system allows: raise `ulimit -f`, "
    "then run the same command again",
    errno.EIO: "the device failed to {} it (input/output error): look at the kernel's log",
    errno.ENOTDIR: "expected a folder there, found a file: name the folder that holds experts.json",
}

_DONE = {"read": "read", "write": "written"}


def from_os_error(error: OSError, path: Path, doing: str = "read", what: str = "") -> StorageError:
    """Words an operating system's error about `path`, or `what` in it; `doing` is a verb, "read" or "write".

    A DeviceError where the device failed.
    """
    where = f"{path}: {what}" if what else f"{path}"
    kind = DeviceError if error.errno == errno.EIO else StorageError
    advice = _ADVICE.get(error.errno or 0)
    if advice is None:
        return kind(f"{where}: {os.strerror(error.errno or 0)}, when it was to be {_DONE[doing]}")
    return kind(f"{where}: {advice.format(doing)}")
