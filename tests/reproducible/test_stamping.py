"""--config=release: what is released is a commit, and says which; anything else says that it is no release."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import elsewhere

TARGETS = ["//images/dsv41:manifest", "//images/dsv41:manifest.labels"]


@pytest.fixture(scope="module")
def commit(other: elsewhere.Elsewhere) -> str:
    """The copy as a repository of its own, with one commit."""
    git(other, "init", "--quiet")
    git(other, "add", "--all")
    git(other, "commit", "--quiet", "--message=one")
    return git(other, "rev-parse", "HEAD")


def git(other: elsewhere.Elsewhere, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": "nobody" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {"GIT_AUTHOR_DATE": "2026-02-03T04:05:06+0200", "GIT_COMMITTER_DATE": "2026-02-03T04:05:06+0200"}
    environment = {**other.env, **identity, **dates}
    done = subprocess.run(
        ["git", *arguments], cwd=other.folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def built(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    manifest, labels = (folder / "images/dsv41" / name for name in ("manifest.json", "manifest.labels.json"))
    return json.loads(manifest.read_bytes()), json.loads(labels.read_bytes())


def test_release_states_commit_and_time(other: elsewhere.Elsewhere, commit: str) -> None:
    manifest, labels = built(other.build("--config=release", *TARGETS))
    assert manifest["commit"] == labels["org.opencontainers.image.revision"] == commit
    assert labels["org.opencontainers.image.created"] == "2026-02-03T02:05:06Z"
    assert labels["org.moet.release"] == "released"
    assert not manifest["tag"].endswith("-dev")


def test_other_builds_say_that_they_are_none(other: elsewhere.Elsewhere, commit: str) -> None:
    manifest, labels = built(other.build(*TARGETS))
    assert manifest["tag"] == labels["org.moet.tag"] and manifest["tag"].endswith("-dev")
    assert labels["org.moet.release"] == "unreleased"
    assert commit not in json.dumps([manifest, labels])


def test_a_tree_with_changes_is_refused(other: elsewhere.Elsewhere, commit: str) -> None:
    (other.folder / "left-behind").touch()
    with pytest.raises(elsewhere.BuildError, match=r"the tree has 1 changes \(left-behind\): commit or remove them"):
        other.build("--config=release", *TARGETS)
    (other.folder / "left-behind").unlink()
