"""A KV disk tier: the folders in DIR that are vLLM's, and a walk over their files that never leaves DIR.

Every folder is opened from its parent's descriptor, by a name that the engine would give it; links are not followed.
What vanishes under the walk is passed over: an engine may be at work.
"""

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from serving.kvcache import engine_files
from serving.kvcache.engine_files import Config, Kind
from serving.kvcache.faults import Faults
from tools.cli.errors import UserError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe of that name would keep its opener waiting.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CONFIG_BYTES = 16 << 20
# Of the file system, root's own, at its top.
_LOST_AND_FOUND = "lost+found"
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}

AccessTimes = Literal["every read", "once a day", "never"]


@dataclass(frozen=True)
class Folder:
    """A folder of the engine's: one model, data type and parallel layout.

    Attributes:
        parent: the folder in DIR that it lies in, such as `indexer-fp8`; None: DIR itself.
        base: its name, `<model>_<12 hex>`.
        config: what its config.json says.
        ranks: names of the folders with its blocks.
    """

    parent: str | None
    base: str
    config: Config
    ranks: tuple[str, ...]

    @property
    def path(self) -> str:
        """Its path in DIR."""
        return joined(self.parent, self.base)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the engine's. Times are in seconds since 1970.

    Attributes:
        name: its name.
        kind: a block or a temporary file.
        size: bytes.
        used: the later one of access and modification time.
        written: modification time.
    """

    name: str
    kind: Kind
    size: int
    used: float
    written: float


@dataclass(frozen=True, slots=True)
class Leaf:
    """A folder with files, open for as long as the walk stands at it.

    Attributes:
        descriptor: of the folder.
        path: its path in DIR.
        files: the engine's in it.
    """

    descriptor: int
    path: str
    files: list[File]


@dataclass
class Tier:
    """A KV disk tier, open.

    Attributes:
        path: DIR, as it was given.
        descriptor: of DIR.
        device: of the file system that DIR is on.
        access_times: when the mount moves access times: at every read; once a day (relatime: at the first read after
            the writing, then when the last one is a day old); never (noatime: writing is the last use that is known).
        folders: the engine's.
        faults: what could not be read or deleted so far.
    """

    path: Path
    descriptor: int
    device: int
    access_times: AccessTimes
    folders: list[Folder] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)

    def leaves(self, folder: Folder) -> Iterator[Leaf]:
        """Walks over the folders of `folder` that have files, each listed when the walk comes to it."""
        with self._open(self.descriptor, folder.parent or ".", folder.parent or ".") as parent:
            with self._open(parent, folder.base, folder.path) as base:
                if base is not None:
                    yield self._leaf(base, folder.path, _probe)
            for rank in folder.ranks:
                where = joined(folder.parent, rank)
                with self._open(parent, rank, where) as top:
                    for first, middle, path in self._below(top, where, engine_files.is_first):
                        for second, bottom, leaf in self._below(middle, path, engine_files.is_second):
                            yield self._leaf(bottom, leaf, functools.partial(engine_files.kind_of, first, second))

    def find(self) -> list[str]:
        """Finds the engine's folders, in DIR and in folders in it; returns the names of folders in DIR without any."""
        strange = []
        for name in self._find_in(self.descriptor, None):
            with self._open(self.descriptor, name, name) as descriptor:
                before = len(self.folders)
                self._find_in(descriptor, name)
                if descriptor is not None and len(self.folders) == before:
                    strange.append(name)
        return strange

    def _find_in(self, descriptor: int | None, parent: str | None) -> list[str]:
        """Adds the engine's folders in a folder, and returns the names that no such folder has."""
        bases: dict[str, list[str]] = {}
        rest = []
        for name in self._names(descriptor, parent or "."):
            base = engine_files.base_of(name)
            if base is not None:
                bases.setdefault(base, []).append(name)
            elif name != _LOST_AND_FOUND:
                rest.append(name)
        for base, names in bases.items():
            ranks = tuple(name for name in names if name != base)
            where = joined(parent, base)
            try:
                with self._open(descriptor, base, where) as opened:
                    config = engine_files.config_of(base, _config(opened))
            except ValueError as error:
                # Without blocks beside it, it may be anybody's.
                if ranks:
                    self.faults.add(f"{where}/{engine_files.CONFIG}", f"{error}; its blocks are left alone")
            else:
                self.folders.append(Folder(parent, base, config, ranks))
        return rest

    @contextmanager
    def _open(self, parent: int | None, name: str, path: str) -> Iterator[int | None]:
        """A descriptor of the folder `name`; None where there is none, or where it may not be entered."""
        descriptor = None
        try:
            if parent is not None:
                descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as error:
            if error.errno not in _GONE:
                self.faults.add(path, error)
        if descriptor is None:
            yield None
            return
        try:
            if os.fstat(descriptor).st_dev == self.device:
                yield descriptor
            else:
                self.faults.add(path, "is on another file system; left alone: name it as a DIR of its own")
                yield None
        finally:
            os.close(descriptor)

    def _names(self, descriptor: int | None, path: str) -> list[str]:
        try:
            return [] if descriptor is None else sorted(os.listdir(descriptor))
        except OSError as error:
            self.faults.add(path, error)
            return []

    def _below(
        self, descriptor: int | None, path: str, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, int, str]]:
        """Name, descriptor and path of each folder below another whose name is wanted."""
        for name in self._names(descriptor, path):
            if wanted(name):
                with self._open(descriptor, name, f"{path}/{name}") as opened:
                    if opened is not None:
                        yield name, opened, f"{path}/{name}"

    def _leaf(self, descriptor: int, path: str, kind_of: Callable[[str], Kind | None]) -> Leaf:
        files = []
        for name in self._names(descriptor, path):
            if (kind := kind_of(name)) is None:
                continue
            try:
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.faults.add(f"{path}/{name}", error)
                continue
            if stat.S_ISREG(found.st_mode):
                used = max(found.st_atime, found.st_mtime)
                files.append(File(name, kind, found.st_size, used, found.st_mtime))
        return Leaf(descriptor, path, files)


def joined(parent: str | None, name: str) -> str:
    """The path in DIR of `name`, which lies in the folder `parent` of it; None: in DIR itself."""
    return name if parent is None else f"{parent}/{name}"


@contextmanager
def opened(path: Path) -> Iterator[Tier]:
    """Opens the KV disk tier in the folder `path`, the `root_dir` of the engine's file-system tier.

    Raises:
        UserError: it is not there, is no folder or a link, cannot be read, has no folder of the engine's, or has them
            only one below and among folders of others.
    """
    try:
        descriptor = os.open(path, _FOLDER)
    except OSError as error:
        raise UserError(f"{path}: {_refusal(path, error)}") from error
    try:
        tier = Tier(path, descriptor, os.fstat(descriptor).st_dev, _access_times(descriptor))
        strange = tier.find()
        own = any(folder.parent is None for folder in tier.folders)
        # A folder of folders may be anybody's, with a tier among them.
        if not tier.folders or (strange and not own):
            raise UserError(_no_tier(tier))
        yield tier
    finally:
        os.close(descriptor)


def _refusal(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return "is a link, and links are not followed; name the folder that it leads to"
    if error.errno == errno.ENOENT:
        return "there is no such folder; expected the folder of a KV disk tier"
    return f"{error.strerror}; expected the folder of a KV disk tier"


def _no_tier(tier: Tier) -> str:
    if tier.folders:
        return f"{tier.path}: no KV disk tier, but {tier.path / str(tier.folders[0].parent)} is one: name that"
    if tier.faults.told:
        return f"{tier.path}: no KV disk tier that can be read: {tier.faults.told[0]}"
    name = tier.path.absolute().name
    hint = "; name the folder around it" if engine_files.base_of(name) else ""
    expected = f"expected a folder MODEL_<12 hex digits> with vLLM's {engine_files.CONFIG}, here or one folder below"
    return f"{tier.path}: no KV disk tier: {expected}{hint}"


def _access_times(descriptor: int) -> AccessTimes:
    flags = os.fstatvfs(descriptor).f_flag
    if flags & os.ST_NOATIME:
        return "never"
    return "once a day" if flags & os.ST_RELATIME else "every read"


def _config(folder: int | None) -> bytes:
    """The contents of config.json; raises ValueError as config_of does."""
    if folder is None:
        raise ValueError("is not there")
    try:
        descriptor = os.open(engine_files.CONFIG, _FILE, dir_fd=folder)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is no regular file")
        if found.st_size > _CONFIG_BYTES:
            raise ValueError(f"has {found.st_size} bytes: expected {_CONFIG_BYTES} at most")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(_CONFIG_BYTES)
    finally:
        os.close(descriptor)


def _probe(name: str) -> Kind | None:
    return Kind.TEMPORARY if engine_files.is_probe(name) else None
