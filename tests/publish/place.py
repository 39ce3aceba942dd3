"""Somewhere to publish a toy tree's releases to, and what has been published there."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images.registry.client import Registry
from images.registry.descriptor import Descriptor
from tests.registry_faults.proxy import Faulty
from tests.release.toy import Toy, moet


@dataclass(frozen=True)
class Place:
    """A copy of the toy tree, a repository in a registry that can fail, and a key."""

    toy: Toy
    proxy: Faulty
    name: str
    key: Path
    home: Path

    @property
    def repository(self) -> str:
        """HOST/NAME."""
        return f"{self.proxy.address}/{self.name}"

    def arguments(self, *more: str) -> list[str]:
        """The arguments of moet that publish here."""
        where = ["--tree", str(self.toy.root), "--registry", self.repository, "--plain-http", "--key", str(self.key)]
        return ["release", "publish", *where, *more]

    def publish(self, *more: str) -> tuple[int, str, str]:
        """Publishes in this process; returns status, stdout and stderr."""
        return moet(*self.arguments(*more))

    def git(self, *arguments: str) -> str:
        """Runs git in the tree."""
        command = ["git", "-C", str(self.toy.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def published(self) -> dict[str, Any]:
        """All there is: git tags with what they say; tags, manifests, blobs and referrers of the registry."""
        with Registry(self.proxy.upstream, plain_http=True) as registry:
            tags = {tag: registry.manifest(self.name, tag) for tag in registry.tags(self.name)}
            listed = {
                tag: sorted(one.digest for one in registry.referrers(self.name, found[0].digest))
                for tag, found in tags.items()
            }
            blobs = {
                descriptor.digest
                for digest in (found[0].digest for found in tags.values())
                for descriptor in _blobs(registry, self.name, digest)
            }
        marks = self.git("for-each-ref", "--format=%(refname) %(objecttype) %(*objectname) %(contents)", "refs/tags")
        return {
            "git": marks.splitlines(),
            "tags": {tag: found[0].digest for tag, found in tags.items() if not tag.startswith("sha256-")},
            "lists": sorted(tag for tag in tags if tag.startswith("sha256-")),
            "referrers": listed,
            "blobs": sorted(blobs),
        }

    def leftovers(self) -> list[str]:
        """What a publish should not leave: changes, work trees, folders of builds."""
        trees = self.git("worktree", "list", "--porcelain").split("\n\n")[1:]
        inside = [path.name for path in (self.toy.root / ".git/moet").glob("*") if path.suffix != ".lock"]
        builds = [str(path) for path in self.home.rglob("moet-release-*")]
        return [*trees, *inside, *builds, *self.git("status", "--porcelain").splitlines()]


def place_of(toy: Toy, proxy: Faulty, name: str, folder: Path) -> Place:
    """Makes a place below `folder` for what is published as `name`."""
    root = folder / "tree"
    shutil.copytree(toy.root, root, symlinks=True)
    made = Place(Toy(root, toy.made), proxy, name, folder / "key", folder / "home")
    made.home.mkdir()
    made.git("config", "user.name", "Somebody")
    made.git("config", "user.email", "somebody@toy.invalid")
    # One key for all, so that all publish the same.
    made.key.write_bytes(_KEY)
    made.key.chmod(0o600)
    return made


def environment(place: Place) -> dict[str, str]:
    """What a program of its own needs to publish at a place."""
    return {"HOME": str(place.home), "XDG_RUNTIME_DIR": str(place.home), "PATH": os.environ["PATH"]}


def _blobs(registry: Registry, name: str, digest: str) -> list[Descriptor]:
    document = json.loads(registry.manifest(name, digest)[1])
    found = [Descriptor.read(value, name) for value in (*document.get("layers", ()), document.get("config")) if value]
    for descriptor in found:
        # Reading it checks it.
        b"".join(registry.blob(name, descriptor))
    return found


_KEY = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB
-----END PRIVATE KEY-----
"""
