"""Remakes the lock of Debian packages from packages.toml, and shows what changed.

usage: bazel run //third_party/debian:lock -- [--check] [--json] [--no-update]

Lets the host's apt solve the wanted packages on an empty system and writes bookworm.lock.bzl with
the version, SHA-256, suite and source of each. With --check nothing is written, versions that can
still be had are kept, and the exit status is 1 when the lock would change all the same.
"""

import argparse
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from third_party.debian import apt, lockfile
from third_party.locking import difference


@dataclass(frozen=True)
class Wanted:
    """packages.toml: what to install, what to leave out, and the source packages that stay frozen."""

    suite: str
    architecture: str
    want: tuple[str, ...]
    absent: tuple[str, ...]
    frozen: tuple[str, ...]


def read_wanted(path: Path) -> Wanted:
    """Reads packages.toml; raises AptError on a missing table or key, or a package both wanted and absent."""
    try:
        data = tomllib.loads(path.read_text())
        suite, architecture = str(data["suite"]), str(data["architecture"])
        want = [name for group in data["want"] for name in group["packages"]]
        absent = [name for group in data["absent"] for name in group["packages"]]
        frozen = [name for group in data["frozen"] for name in group["sources"]]
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise apt.AptError(f"{path}: cannot be read as wanted packages: {type(error).__name__} {error}") from None
    if both := sorted(set(want) & set(absent)):
        raise apt.AptError(f"{path.name}: {', '.join(both)} is wanted and absent; keep one of the two")
    return Wanted(suite, architecture, tuple(want), tuple(absent), tuple(frozen))


def resolve(client: apt.Apt, wanted: Wanted, keep: Mapping[str, str]) -> dict[str, lockfile.Deb]:
    """Returns the packages that `wanted` needs, by name; `keep` maps names to versions to stay with.

    Raises AptError on an unknown package, one that only a source outside the suite has, and an absent
    or frozen entry that nothing needs.
    """
    preferences = apt.preferences(wanted.suite, wanted.frozen, keep)
    client.configure(preferences, "")
    absent = client.candidates(wanted.absent)
    client.configure(preferences, apt.status(absent, wanted.architecture))
    offers = client.solve(wanted.want)
    shown = client.show({offer.name: offer.version for offer in offers})
    debs = {}
    for offer in offers:
        fields = shown[offer.name]
        source, _, source_version = fields.get("Source", offer.name).partition(" ")
        debs[offer.name] = lockfile.Deb(
            version=offer.version,
            architecture=fields["Architecture"],
            file=PurePosixPath(fields["Filename"]).name,
            sha256=fields["SHA256"],
            size=int(fields["Size"]),
            suite=offer.suite,
            source=source,
            source_version=source_version.strip("()") or offer.version,
        )
    depends = " ".join(f"{fields.get('Depends')} {fields.get('Pre-Depends')}" for fields in shown.values())
    needed = set(re.findall(r"[a-z0-9][a-z0-9+.-]+", depends))
    if unused := sorted(set(absent) - needed):
        raise apt.AptError(f"packages.toml: nothing in the lock needs the absent {', '.join(unused)}; remove it")
    if unused := sorted(set(wanted.frozen) - {deb.source for deb in debs.values()}):
        raise apt.AptError(f"packages.toml: frozen source {', '.join(unused)} has no package in the lock; remove it")
    if strays := sorted(n for n, deb in debs.items() if deb.source in wanted.frozen and deb.suite != "main"):
        raise apt.AptError(f"packages.toml: {', '.join(strays)} is frozen, but only a newer archive can satisfy it")
    return debs


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="remake the lock of Debian packages and show the difference")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the lock would change")
    parser.add_argument("--json", action="store_true", help="print the difference as JSON")
    parser.add_argument("--no-update", action="store_true", help="use the host's package lists, not fresh ones")
    args = parser.parse_args(argv)
    folder = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."), "third_party/debian")
    try:
        wanted = read_wanted(folder / "packages.toml")
        target = folder / f"{wanted.suite}.lock.bzl"
        before = lockfile.read(target) if target.exists() else {}
        with tempfile.TemporaryDirectory() as state:
            client = apt.Apt(Path(state), wanted.architecture)
            if not args.no_update:
                client.update()
            keep = _obtainable(client, before) if args.check else {}
            after = resolve(client, wanted, keep)
    except apt.AptError as error:
        print(f"lock: {error}", file=sys.stderr)
        return 1
    gone = {name for name in before if name not in keep} if args.check else set()
    changes = [change for change in difference.between(before, after) if change.name not in gone]
    print(difference.as_json(changes) if args.json else difference.as_table("packages", changes, after))
    if gone:
        print(f"no longer to be had, so unchecked: {', '.join(sorted(gone))}", file=sys.stderr)
    if args.check:
        return 1 if changes else 0
    if changes:
        lockfile.write(target, wanted.suite.upper(), after)
    return 0


def _obtainable(client: apt.Apt, before: Mapping[str, lockfile.Deb]) -> dict[str, str]:
    offered = client.offered(before)
    return {name: deb.version for name, deb in before.items() if deb.version in offered.get(name, [])}


if __name__ == "__main__":
    sys.exit(main())
