"""A wheel, read member by member and checked against its own RECORD."""

import base64
import csv
import hashlib
import io
import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from patches.engine.errors import PatchError


class Wheel:
    """A wheel: `project`, `version`, `file` (its name), `sha256` and `size` (of the whole file, in bytes)."""

    def __init__(self, path: Path) -> None:
        """Open the wheel. Raises PatchError if it cannot be read or is no wheel."""
        try:
            with path.open("rb") as stream:
                self.sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise PatchError(f"{path}: no such wheel: give the pinned wheel's file") from None
        except (OSError, zipfile.BadZipFile) as error:
            raise PatchError(f"{path}: cannot be read as a wheel ({error}): fetch it again") from None
        self.file = path.name
        self.size = path.stat().st_size
        self._names = frozenset(self._zip.namelist())
        tops = {name.split("/")[0] for name in self._names if "/" in name}
        self._packages = {name for name in tops if not name.endswith((".data", ".dist-info"))}
        infos = sorted({name.split("/")[0] for name in self._names if ".dist-info/" in name})
        if len(infos) != 1 or f"{infos[0]}/RECORD" not in self._names:
            raise PatchError(f"{path.name}: expected one .dist-info folder with a RECORD: it is no wheel")
        self._info = infos[0]
        self.project, _, self.version = self._info.removesuffix(".dist-info").partition("-")
        rows = csv.reader(io.StringIO(self._zip.read(f"{self._info}/RECORD").decode("utf-8")))
        self._recorded = {row[0]: row[1] for row in rows if len(row) > 1}

    def __enter__(self) -> Self:
        """The wheel itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; nothing can be read any more."""
        self._zip.close()

    def paths(self, suffix: str = "") -> list[str]:
        """The files of the wheel's packages whose names end in `suffix`, sorted."""
        return sorted(
            name
            for name in self._names
            if name.split("/")[0] in self._packages and name.endswith(suffix) and not name.endswith("/")
        )

    def has(self, path: str) -> bool:
        """Whether the wheel has this file, in one of its packages."""
        return path in self._names and path.split("/")[0] in self._packages

    def read(self, path: str) -> bytes | None:
        """The content of one member, or None if there is none.

        Raises PatchError for a damaged member, for one that RECORD knows otherwise, and for a path outside
        the wheel's packages: there it would be another wheel's, or installed elsewhere (.data, .dist-info).
        """
        if path.split("/")[0] not in self._packages:
            listed = ", ".join(sorted(self._packages))
            raise PatchError(f"{path}: outside the packages of {self.file}: a patch changes only {listed}")
        if path not in self._names:
            return None
        try:
            data = self._zip.read(path)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise PatchError(f"{self.file}: {path} is damaged ({error}): fetch the wheel again") from None
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
        if self._recorded.get(path) != f"sha256={digest}":
            raise PatchError(
                f"{self.file}: {path} is sha256={digest}, its RECORD says "
                f"{self._recorded.get(path, 'nothing')}: the wheel was changed after it was built; fetch it again"
            )
        return data
