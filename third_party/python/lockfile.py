"""The lock of a Python closure."""

from dataclasses import asdict, dataclass
from pathlib import Path

from third_party.locking import starlark


@dataclass(frozen=True)
class Entry:
    """One locked wheel: `size` in bytes, `sha256` in hex, `requires` as normalised names."""

    version: str
    file: str
    sha256: str
    size: int
    requires: tuple[str, ...]

    @property
    def label(self) -> str:
        """The version as people read it."""
        return self.version


def read(path: Path) -> dict[str, Entry]:
    """Returns the entries of a lock file, by normalised name."""
    return {name: Entry(**{**pin, "requires": tuple(pin["requires"])}) for name, pin in starlark.read(path).items()}


def write(path: Path, name: str, entries: dict[str, Entry]) -> None:
    """Replaces the lock file at `path` whole, or leaves it as it was."""
    pins = {project: asdict(entry) for project, entry in entries.items()}
    starlark.write(path, starlark.render("WHEELS", f"bazel run //third_party/python:lock -- {name}", pins))
