"""A small Debian archive in a folder, with the suites that a lock is made of, for the real apt to read."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

_RELEASE = {
    "bookworm": ("Debian", "oldstable"),
    "bookworm-updates": ("Debian", "oldstable-updates"),
    "bookworm-security": ("Debian-Security", "oldstable-security"),
    "bookworm-backports": ("Debian Backports", "oldstable-backports"),
}


@dataclass
class Archive:
    """Packages by suite (codename), each with its index fields; `write` makes the archive that apt reads."""

    folder: Path
    stanzas: dict[str, list[str]] = field(default_factory=lambda: {suite: [] for suite in _RELEASE})

    def add(self, suite: str, name: str, version: str, **fields: str) -> None:
        """Adds a package to a suite; `fields` are control fields, `_` standing for `-`."""
        path = f"pool/{name}_{version.rpartition(':')[2]}_amd64.deb"
        content = f"{name} {version}".encode()
        (self.folder / "pool").mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(content)
        extra = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items())
        self.stanzas[suite].append(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody\n{extra}"
            f"Filename: {path}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
            "Description: for tests\n"
        )

    def remove(self, suite: str, name: str) -> None:
        """Takes a package out of a suite."""
        self.stanzas[suite] = [text for text in self.stanzas[suite] if not text.startswith(f"Package: {name}\n")]

    def write(self) -> Path:
        """Writes the archive and returns the apt.conf that makes it apt's only source."""
        sources = ""
        for suite, (label, alias) in _RELEASE.items():
            index = "\n".join(self.stanzas[suite]).encode()
            folder = self.folder / "dists" / suite
            (folder / "main/binary-amd64").mkdir(parents=True, exist_ok=True)
            (folder / "main/binary-amd64/Packages").write_bytes(index)
            (folder / "Release").write_text(
                f"Origin: Debian\nLabel: {label}\nSuite: {alias}\nCodename: {suite}\nArchitectures: amd64\n"
                f"Components: main\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
                f" {hashlib.sha256(index).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
            )
            sources += f"deb [trusted=yes] file:{self.folder} {suite} main\n"
        (self.folder / "sources.list").write_text(sources)
        (self.folder / "lists/partial").mkdir(parents=True, exist_ok=True)
        conf = self.folder / "apt.conf"
        conf.write_text(
            f'Dir::Etc::sourcelist "{self.folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State::lists "{self.folder}/lists";\nDir::State::status "/dev/null";\nAPT::Sandbox::User "root";\n'
        )
        return conf
