"""What the container's user may do with files of the host."""

import os
from pathlib import Path

# The image's user and group (images/defs.bzl).
UID = 1000
GID = 1000

READ = 4
WRITE = 2
ENTER = 1

_ACL = "system.posix_acl_access"


def may(path: Path, bits: int) -> bool:
    """Whether the container's user has all of `bits` (READ, WRITE, ENTER) on a file or folder; links are followed.

    Folders above it do not count: a mount shows the folder itself. Nor is a file with an access control list judged:
    it passes. Raises OSError.
    """
    status = path.stat()
    shift = 6 if status.st_uid == UID else 3 if status.st_gid == GID else 0
    return (status.st_mode >> shift) & bits == bits or _has_acl(path)


def leaves(folder: Path, name: str) -> str | None:
    """Where the link `folder`/`name` leads, if the container, which has the folder at another path, cannot follow it.

    None for what is no link, and for links that stay in the folder.
    """
    at = name
    for _ in range(40):
        if not (folder / at).is_symlink():
            return None
        target = os.readlink(folder / at)
        at = os.path.normpath(os.path.join(os.path.dirname(at), target))
        if os.path.isabs(target) or at.split("/")[0] == "..":
            return target
    return target


def _has_acl(path: Path) -> bool:
    try:
        return _ACL in os.listxattr(path)
    except OSError:
        return False
