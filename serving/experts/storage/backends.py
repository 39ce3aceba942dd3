"""Back ends by name, and which of them this machine has."""

import os
import resource
from pathlib import Path
from typing import Any

from serving.experts.storage import buffers, native
from serving.experts.storage.arena import Arena
from serving.experts.storage.backend import Backend, Verify
from serving.experts.storage.direct_io import Direct
from serving.experts.storage.mapped import Mapped
from serving.experts.storage.pinned import Pinned
from serving.experts.storage.reader import Container
from serving.experts.storage.refusal import StorageError

NAMES = ("mmap", "direct", "pinned", "arena")


def make(name: str, container: Container, verify: Verify = "always", **options: Any) -> Backend:
    """Makes a back end.

    Args:
        name: "mmap", "direct" (O_DIRECT), "pinned" (page-locked RAM) or "arena" (LRU in RAM over another).
        container: what is read.
        verify: which reads are checked: "always", the "first" of each record, or "never".
        **options: mmap: depth (threads that bring records in, 16). direct: depth (reads in flight, 16), chunk (bytes
            of one, 4 MiB), engine ("auto", "io_uring", "preadv"). pinned: keys (which records; all). arena: slots (how
            many records), below ("direct" or "mmap"), heat (a Path, or None), and what `below` takes.

    Raises StorageError.
    """
    if name == "mmap":
        return Mapped(container, verify, **options)
    if name == "direct":
        return Direct(container, verify, **options)
    if name == "pinned":
        return Pinned(container, verify, **options)
    if name != "arena":
        raise StorageError(f"back end {name!r}; expected one of {', '.join(NAMES)}")
    slots, heat_file = options.pop("slots", 0), options.pop("heat", None)
    if slots < 1:
        raise StorageError(f"slots: {slots}; expected how many records the arena holds, 1 or more")
    below = options.pop("below", "direct")
    if below not in ("direct", "mmap"):
        raise StorageError(f"below: {below!r}; expected direct or mmap")
    under = make(below, container, verify, **options)
    try:
        return Arena(under, slots, heat_file)
    except BaseException:
        under.close()
        raise


def available(folder: Path) -> dict[str, str]:
    """What of the back ends this machine and the file system of `folder` have: name to "" or why not."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    locks = "" if os.geteuid() == 0 or soft == resource.RLIM_INFINITY else f"only {soft:,} bytes (`ulimit -l`)"
    return {
        "checksums in machine code": native.WHY,
        "O_DIRECT": _without_direct(folder),
        "io_uring": native.WHY or str(native.MODULE.without_io_uring()),
        "cudaHostRegister": buffers.runtime()[1],
        "mlock": locks,
    }


def _without_direct(folder: Path) -> str:
    for name in ("experts.json", "draft.json"):
        try:
            os.close(os.open(folder / name, os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
            return ""
        except FileNotFoundError:
            continue
        except OSError as error:
            return error.strerror or "not here"
    return "not known: no container there"
