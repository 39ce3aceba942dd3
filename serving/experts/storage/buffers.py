"""Memory that reads may go to directly: page-aligned, and page-locked where that can be had."""

import ctypes
import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np

from serving.experts.storage.refusal import StorageError

_HUGE = 2 << 20
_PORTABLE = 1
_RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")


def aligned(size: int) -> memoryview:
    """`size` zero bytes, writable, at an address that is a multiple of 4096 (of 2 MiB, from 2 MiB on).

    Raises StorageError where the system does not give that much.
    """
    if size <= 0:
        raise StorageError(f"buffer of {size} bytes; expected a positive number")
    room = size if size < _HUGE else size + _HUGE
    try:
        # Not shared: the kernel then backs it with large pages.
        memory = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise StorageError(f"{size:,} bytes of memory were not to be had ({error}): ask for fewer records") from None
    if room == size:
        return memoryview(memory)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    skip = -address(memoryview(memory)) % _HUGE
    return memoryview(memory)[skip : skip + size]


def address(view: memoryview) -> int:
    """Where the bytes of a contiguous buffer begin."""
    return int(np.frombuffer(view, np.uint8).ctypes.data)


class Lock:
    """Page-locks a buffer for as long as it is held.

    Attributes:
        how: "cudaHostRegister", "mlock", or "" where the pages stay ordinary.
        note: why it is not cudaHostRegister; empty if it is.
    """

    def __init__(self, view: memoryview) -> None:
        self._at, self._size = address(view), view.nbytes
        self.how, self.note = "", ""
        self._cuda, why = runtime()
        if self._cuda is not None:
            status = self._cuda.cudaHostRegister(ctypes.c_void_p(self._at), ctypes.c_size_t(self._size), _PORTABLE)
            if status == 0:
                self.how = "cudaHostRegister"
                return
            self._cuda.cudaGetLastError()
            why = f"cudaHostRegister gave CUDA error {status}"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(ctypes.c_void_p(self._at), ctypes.c_size_t(self._size)) == 0:
            self.how, self.note = "mlock", f"locked in RAM by mlock, not known to CUDA: {why}"
        else:
            self.note = f"ordinary memory, which may be swapped out: {why}; mlock: needs a larger `ulimit -l`"

    def release(self) -> None:
        """Gives the lock back."""
        if self.how == "cudaHostRegister":
            self._cuda.cudaHostUnregister(ctypes.c_void_p(self._at))
        elif self.how == "mlock":
            ctypes.CDLL(None).munlock(ctypes.c_void_p(self._at), ctypes.c_size_t(self._size))
        self.how = ""


def runtime() -> tuple[Any, str]:
    """CUDA's runtime library with a device, or None and why; torch's own, where torch is loaded."""
    if "torch" in sys.modules:
        # The process has one runtime already; its symbols are found by name.
        names: tuple[str, ...] = (*_loaded(), *_RUNTIMES)
    else:
        names = _RUNTIMES
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        status = library.cudaGetDeviceCount(ctypes.byref(count))
        if status == 0 and count.value > 0:
            return library, ""
        return None, f"CUDA sees no device (error {status})"
    return None, "CUDA's runtime library is not there"


def _loaded() -> tuple[str, ...]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = {line.split()[-1] for line in maps if "libcudart.so" in line}
    return tuple(sorted(found))
