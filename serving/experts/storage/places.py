"""A container's folder: its files by name, no link followed, changed in one stroke; the lock of its writer."""

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.experts.storage.refusal import StorageError, from_os_error

LOCK = "writer.lock"
_LARGEST_SMALL = 256 << 20
# holder() takes the lock for a moment.
_LOCK_TRIES, _LOCK_PAUSE = 10, 0.02


class Folder:
    """An open folder. Files are found relative to it, so that it may be moved meanwhile; use as a context or close.

    Raises StorageError where it is not there, is no folder, or may not be looked into.
    """

    def __init__(self, path: Path, make: bool = False) -> None:
        self.path = path
        self._fd = -1
        try:
            if make:
                path.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StorageError(f"{path}: is not there; expected the folder of a container") from None
        except FileExistsError:
            raise from_os_error(NotADirectoryError(errno.ENOTDIR, ""), path) from None
        except OSError as error:
            raise from_os_error(error, path, "write" if make else "read") from None

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the folder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Opens a regular file and returns its descriptor. FileNotFoundError comes as it is."""
        path = self.path / name
        try:
            # A pipe in the file's place must not block.
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o644, dir_fd=self._fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise from_os_error(error, path, "read" if flags & os.O_ACCMODE == os.O_RDONLY else "write") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StorageError(f"{path}: is no regular file; expected one: put the file in its place")
        os.set_blocking(fd, True)
        return fd

    def has(self, name: str) -> bool:
        """Whether something of that name is there, a dangling link too."""
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise from_os_error(error, self.path / name) from None
        return True

    def names(self) -> list[str]:
        """The names in the folder, sorted."""
        return sorted(os.listdir(self._fd))

    def load(self, name: str) -> bytes:
        """The whole of a small file. FileNotFoundError comes as it is."""
        fd = self.open(name)
        with os.fdopen(fd, "rb") as stream:
            size = os.fstat(fd).st_size
            if size > _LARGEST_SMALL:
                raise StorageError(f"{self.path / name}: {size:,} bytes; expected at most {_LARGEST_SMALL:,}")
            try:
                return stream.read()
            except OSError as error:
                raise from_os_error(error, self.path / name) from None

    def replace(self, name: str, data: bytes) -> None:
        """Puts `data` in place of a file in one stroke, safe on disk at return. Raises StorageError; the old stays."""
        draft = f".{name}.partial"
        self.remove(draft)
        try:
            fd = self.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(fd, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(fd)
            self.rename(draft, name)
        except OSError as error:
            raise from_os_error(error, self.path / name, "write") from None
        finally:
            self.remove(draft)

    def rename(self, old: str, new: str) -> None:
        """Renames a file over whatever has the new name, safe on disk at return."""
        try:
            os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            os.fsync(self._fd)
        except OSError as error:
            raise from_os_error(error, self.path / new, "write") from None

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise from_os_error(error, self.path / name, "write") from None

    def free(self) -> int:
        """Bytes that this user can still write on the file system; all there could be, where it does not tell."""
        try:
            found = os.fstatvfs(self._fd)
        except OSError as error:
            raise from_os_error(error, self.path) from None
        return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize

    def holder(self) -> str:
        """Who writes here now: "process 123", or nothing."""
        try:
            fd = self.open(LOCK)
        except FileNotFoundError:
            return ""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(fd, 80, 0).decode(errors="replace").strip() or "another process"
        finally:
            os.close(fd)
        return ""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other writers out; the kernel drops the lock with the process. StorageError names the holder."""
        fd = self.open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            self._take(fd)
            try:
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"process {os.getpid()}\n".encode(), 0)
            except OSError as error:
                raise from_os_error(error, self.path / LOCK, "write") from None
            yield
        finally:
            os.close(fd)

    def _take(self, fd: int) -> None:
        for left in range(_LOCK_TRIES, -1, -1):
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if left:
                    time.sleep(_LOCK_PAUSE)
            except OSError as error:
                raise from_os_error(error, self.path / LOCK, "write") from None
        holder = os.pread(fd, 80, 0).decode(errors="replace").strip() or "another process"
        raise StorageError(f"{self.path}: {holder} writes it; wait for it to end, then run this again")


def write_all(fd: int, view: memoryview, offset: int) -> None:
    """Writes bytes at an offset of a file, however many calls that takes. OSError comes as it is."""
    done = 0
    while done < view.nbytes:
        done += os.pwrite(fd, view[done:], offset + done)


def read_all(fd: int, size: int) -> bytes:
    """The first `size` bytes of a file, fewer where it ends before. OSError comes as it is."""
    data = b""
    while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
        data += more
    return data
