"""The lock of Debian packages."""

from dataclasses import asdict, dataclass
from pathlib import Path

from third_party.locking import starlark


@dataclass(frozen=True)
class Deb:
    """One locked package: `size` in bytes, `sha256` in hex, `suite` main, updates or security."""

    version: str
    architecture: str
    file: str
    sha256: str
    size: int
    suite: str
    source: str
    source_version: str

    @property
    def label(self) -> str:
        """The version as people read it."""
        return f"{self.version} ({self.suite})"


def read(path: Path) -> dict[str, Deb]:
    """Returns the packages of a lock file, by name."""
    return {name: Deb(**pin) for name, pin in starlark.read(path).items()}


def write(path: Path, variable: str, debs: dict[str, Deb]) -> None:
    """Replaces the lock file at `path` whole, or leaves it as it was."""
    pins = {name: asdict(deb) for name, deb in debs.items()}
    starlark.write(path, starlark.render(variable, "bazel run //third_party/debian:lock", pins))
