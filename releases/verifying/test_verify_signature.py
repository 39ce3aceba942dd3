import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.engine import layout
from images.registry.client import Registry
from images.registry.descriptor import Descriptor
from images.registry.push_image import push_image
from releases.attestations import dsse, referrers, statement
from releases.known import Known
from releases.testing.toy import R0, R1, Toy
from releases.tree import build
from releases.tree.git import Git
from tests.engine.engines import loopback_registry
from tests.faults import killer
from tests.release.signing import key_pair


class Silent:
    """No progress."""

    def start(self, what: str, total: int) -> None:
        """Nothing."""

    def advance(self, amount: int) -> None:
        """Nothing."""


@pytest.fixture
def published(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Toy, str, Path]]:
    """r0 and r1 in a registry, r1 signed; yields tree, HOST:PORT/toy and the public key."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    private, public = key_pair(tmp_path, "key")
    known = Known.find(toy.root)
    with loopback_registry() as address, Registry(address, plain_http=True) as registry:
        for tag in (R0, R1):
            with build.elsewhere(Git(toy.root), known.entry(tag).commit) as workspace:
                pushed = push_image(registry, "toy", tag.name, layout.read(workspace.built(tag)), Silent())
        for kind, said in statement.of_release(known.entry(R1), known.record(R1)).items():
            attach(registry, pushed.manifest, kind, dsse.sign(said.encode(), private))
        yield toy, f"{address}/toy", public


def attach(registry: Registry, image: Descriptor, kind: str, envelope: bytes) -> None:
    referrers.attach_envelope(registry, "toy", image, kind, None, envelope)


def run(toy: Toy, *words: str) -> killer.Outcome:
    return killer.run(0, "tools.moet.main", ["image", "verify", *words, "--signature", "--plain-http"], toy.root)


def test_signed_and_not(published: tuple[Toy, str, Path], tmp_path: Path) -> None:
    toy, place, public = published
    good = run(toy, str(R1), "--key", str(public), "--registry", place)
    assert good.status == 0, good.errors
    assert good.output.startswith(f"{R1}: {toy.changelog.entries[0].digest}\n")
    assert "SBOM" in good.output
    assert "provenance" in good.output
    told = run(toy, str(R1), "--key", str(public), "--registry", f"{place}:{R1.name}", "--json")
    document = json.loads(told.output)
    assert document["schema"] == "moet.image-verify-signature.v1"
    assert [one["key"] for one in document["signatures"]] == [str(public), str(public)]

    _, other = key_pair(tmp_path, "other")
    wrong = run(toy, str(R1), "--key", str(other), "--registry", place)
    assert wrong.status == 1
    assert "no SBOM" in wrong.errors
    unsigned = run(toy, str(R0), "--key", str(public), "--registry", place)
    assert unsigned.status == 1
    assert "has no signature at all" in unsigned.errors


def test_what_is_signed_must_be_what_the_changelog_says(published: tuple[Toy, str, Path]) -> None:
    toy, place, public = published
    toy.write("CHANGELOG.md", toy.read("CHANGELOG.md").replace(toy.changelog.entries[0].commit, "0" * 40))
    done = run(toy, str(R1), "--key", str(public), "--registry", place)
    assert done.status == 1
    assert done.errors.startswith("moet image verify: ")
