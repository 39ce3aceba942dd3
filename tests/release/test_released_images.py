"""The real releases: built again, published, verified, and gone to and back from, in engines of the test's own.

The newest release of a line and its r0, as CHANGELOG.md of the last commit has them.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from images.engine import layout
from releases.changelog.entry import Entry
from releases.known import Known
from releases.tree import build
from releases.tree.git import Git
from tests.engine import scratch
from tests.engine.containers import Container, DockerRunner
from tests.engine.engines import loopback_registry, private_dockerd
from tests.release.signing import key_pair
from tests.release.toy import document

_LINE = os.environ.get("MOET_LINE", "dsv41")


def test_built_published_verified_and_gone_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = Path("bazelw").resolve().parent
    private, public = key_pair(tmp_path, "key")
    with scratch.folder(scratch.roomy()) as folder, loopback_registry() as address:
        tree = _clone(root, folder / "tree")
        entries = _releases(tree)
        tags = [str(entry.tag) for entry in entries]
        repository = f"{address}/moet/{_LINE}"
        there = ["--registry", repository, "--plain-http"]
        with _built(tree, entries) as layouts:
            for entry, place in zip(entries, layouts, strict=True):
                image = layout.read(place)
                assert (image.manifest.digest, image.config.digest) == (entry.digest, entry.image_id)
            given = [word for place in layouts for word in ("--layout", str(place))]
            publish = ["release", "publish", *tags, "--tree", str(tree), "--key", str(private), *given, *there]
            document(*publish)
        for entry in entries:
            verified = document(
                *("image", "verify", str(entry.tag), "--tree", str(tree), "--signature"),
                *("--key", str(public), *there),
            )
            assert verified["digest"] == entry.digest and verified["signatures"]
        _go(tree, entries, [*there, "--key", str(public)])


def _go(tree: Path, entries: Sequence[Entry], there: Sequence[str]) -> None:
    """From the registry into an engine that has nothing: forward, back, forward again, and undone."""
    newest, first = str(entries[0].tag), str(entries[-1].tag)
    with private_dockerd() as dockerd:
        command = ["image", "rollback", _LINE, "--tree", str(tree), "--host", dockerd.host, *there]
        way = [(["--to", newest], newest, "registry")]
        if first != newest:
            way += [
                (["--to", first], first, "registry"),
                (["--to", newest], newest, "engine"),
                (["--undo"], first, "engine"),
            ]
        for arguments, expected, source in way:
            result = document(*command, *arguments)
            assert (result["after"]["tag"], result["source"]) == (expected, source)
        for entry in entries:
            assert str(dockerd.client.images.get(str(entry.tag)).id) == entry.image_id
            outcome = DockerRunner(dockerd.client, str(entry.tag)).run(Container(["attest"]))
            assert outcome.status == 0, outcome.tail()
            assert f"{entry.tag} (" in outcome.errors + outcome.output
            for number, name in entry.steps:
                assert f"{number}" in outcome.errors + outcome.output and name in outcome.errors + outcome.output


def _clone(root: Path, to: Path) -> Path:
    """A clone of the last commit: publishing makes git tags, which are none of a test's business in the tree."""
    for command in (
        ["git", "clone", "--quiet", "--shared", str(root), str(to)],
        ["git", "-C", str(to), "config", "user.name", "Test"],
        ["git", "-C", str(to), "config", "user.email", "test@test.invalid"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return to


def _releases(tree: Path) -> list[Entry]:
    """The newest release of the line, and the r0 of the same base where that is another."""
    changelog = Known.find(tree).changelog
    newest = changelog.newest(_LINE)
    if newest is None:
        pytest.skip(f"CHANGELOG.md has no release of {_LINE} yet")
    first = (one for one in changelog.entries if one.tag.number == 0 and one.tag.base == newest.tag.base)
    entries = list(dict.fromkeys(str(one.tag) for one in (newest, *first) if one.tag.line == _LINE))
    git = Git(tree)
    found = [one for one in changelog.entries if str(one.tag) in entries]
    for entry in found:
        if git.resolve(entry.commit) is None and git.is_shallow():
            pytest.skip(f"this clone is shallow and lacks {entry.commit}, which {entry.tag} was built from")
    return found


@contextmanager
def _built(tree: Path, entries: Sequence[Entry]) -> Iterator[list[Path]]:
    """Layouts of the releases, each from its commit in a clean folder; those of one commit in one build."""
    git = Git(tree)
    with ExitStack() as stack:
        workspaces = {
            commit: stack.enter_context(build.elsewhere(git, commit))
            for commit in dict.fromkeys(entry.commit for entry in entries)
        }
        for commit, workspace in workspaces.items():
            targets = [build.target(entry.tag) for entry in entries if entry.commit == commit]
            build.build(workspace.root, targets, release=True, output_base=workspace.output_base)
        yield [workspaces[entry.commit].built(entry.tag) for entry in entries]
