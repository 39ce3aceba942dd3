"""The host's apt, asked from a state of its own: what would be installed on an empty system, and what is offered.

Sources, mirrors, proxies and keys are the host's configuration. The status, the preferences and the
caches are private, so neither what the host has installed nor what it has pinned leaks into an answer.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_INST = re.compile(r"^Inst (\S+) \((\S+) (.*) \[(\w+)\]\)")

# By label and what follows the first dash of the archive's name.
_SUITES = {("Debian", ""): "main", ("Debian", "updates"): "updates", ("Debian-Security", "security"): "security"}


class AptError(Exception):
    """apt refused; the message is one line for the user."""


@dataclass(frozen=True)
class Offer:
    """One package of a solution; `suite` is main, updates or security, by where its version is to be had."""

    name: str
    version: str
    suite: str


def preferences(suite: str, frozen: Iterable[str], keep: Mapping[str, str]) -> str:
    """Returns apt preferences: the suite's three archives before any other source of the host.

    `frozen` are source packages that stay with the frozen archive; `keep` maps binary packages to
    the version to stay with.
    """
    pins = [(name, f"version {version}", 1002) for name, version in keep.items()]
    pins += [(f"src:{source}", f"release n={suite}", 1001) for source in frozen]
    pins += [("*", f"release n={suite}{archive}", 990) for archive in ("", "-updates", "-security")]
    return "".join(f"Package: {what}\nPin: {pin}\nPin-Priority: {priority}\n\n" for what, pin, priority in pins)


def status(absent: Mapping[str, str], architecture: str) -> str:
    """Returns a dpkg status in which only the packages to leave out (name to version) look installed.

    Their dependencies then bring nothing, and dependencies on them are met.
    """
    return "".join(
        f"Package: {name}\nStatus: install ok installed\nMaintainer: nobody\nArchitecture: {architecture}\n"
        f"Multi-Arch: allowed\nVersion: {version}\nDescription: left out\n\n"
        for name, version in absent.items()
    )


class Apt:
    """apt with its state in `folder`; `update` gives it fresh package lists too."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self._folder = folder
        self._architecture = architecture
        self._lists: list[str] = []
        for name in ("cache/archives/partial", "lists/partial", "parts"):
            (folder / name).mkdir(parents=True)
        self.configure("", "")

    def configure(self, preferences_text: str, status_text: str) -> None:
        """Sets the private preferences and dpkg status."""
        (self._folder / "preferences").write_text(preferences_text)
        (self._folder / "status").write_text(status_text)

    def update(self) -> None:
        """Fetches package lists from the host's sources into the private state.

        Raises AptError when a source cannot be read.
        """
        self._lists = ["-o", f"Dir::State::lists={self._folder}/lists", "-o", "APT::Sandbox::User=root"]
        self._run("apt-get", "-o", "APT::Update::Error-Mode=any", "update")

    def solve(self, packages: Iterable[str]) -> list[Offer]:
        """Returns what apt would install for `packages` without recommendations, by name.

        Raises AptError when a package is unknown, its dependencies cannot be met, or Debian itself does not have it.
        """
        text = self._run("apt-get", "--simulate", "--no-install-recommends", "install", *packages)
        offers = []
        for line in text.splitlines():
            if found := _INST.match(line):
                name, version, releases, _ = found.groups()
                offers.append(Offer(name.partition(":")[0], version, _suite(name, releases)))
        return sorted(offers, key=lambda offer: offer.name)

    def show(self, versions: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """Returns the index fields of each name=version, by name."""
        text = self._run("apt-cache", "show", *(f"{name}={version}" for name, version in versions.items()))
        shown: dict[str, dict[str, str]] = {}
        for stanza in text.split("\n\n"):
            fields = dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE))
            name = str(fields.get("Package"))
            if versions.get(name) == fields.get("Version", ""):
                shown[name] = fields
        if missing := sorted(versions.keys() - shown.keys()):
            raise AptError(f"apt shows no record of {', '.join(missing)}")
        return shown

    def candidates(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the version of each name that apt prefers.

        Raises AptError when there is none.
        """
        text = self._run("apt-cache", "policy", *names)
        found = dict(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (\d\S*)$", text, re.MULTILINE))
        if unknown := sorted(set(names) - found.keys()):
            raise AptError(f"apt knows no package {', '.join(unknown)}: mind the spelling, or run `apt-get update`")
        return found

    def offered(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Returns the versions of each name that can be had, newest first; names without any are left out."""
        versions: dict[str, list[str]] = {}
        for line in self._run("apt-cache", "madison", *names).splitlines():
            name, version, _ = (part.strip() for part in line.split("|"))
            versions.setdefault(name, []).append(version)
        return versions

    def _run(self, program: str, *arguments: str) -> str:
        command = [
            program,
            "-o", f"APT::Architecture={self._architecture}",
            "-o", f"Dir::State::status={self._folder}/status",
            "-o", f"Dir::State::extended_states={self._folder}/extended_states",
            "-o", f"Dir::Etc::preferences={self._folder}/preferences",
            "-o", f"Dir::Etc::preferencesparts={self._folder}/parts",
            "-o", f"Dir::Cache={self._folder}/cache",
            "-o", "Debug::NoLocking=1",
            *self._lists,
            *arguments,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
        except FileNotFoundError:
            raise AptError(f"{program} is not installed: expected Debian's apt; run this on Debian") from None
        if done.returncode:
            said = [line[3:] for line in done.stderr.splitlines() if line.startswith("E: ")] or [done.stderr.strip()]
            raise AptError(f"{program}: {'; '.join(said)}")
        return done.stdout


def _suite(name: str, releases: str) -> str:
    """Tells the archive from apt's list, e.g. "Debian:12.15/oldstable, Debian-Security:12/oldstable-security"."""
    found = set()
    for release in releases.split(", "):
        label, _, archive = release.partition(":")
        found.add(_SUITES.get((label, archive.rpartition("/")[2].partition("-")[2])))
    for suite in ("main", "updates", "security"):
        if suite in found:
            return suite
    raise AptError(f"{name} is to be had from {releases} alone, not from Debian's own archives; do not want it")
