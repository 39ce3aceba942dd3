"""Attestations beside an image: attached once, found by everybody, refused when they are not what they should be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from images.registry.client import INDEX, fallback_tag
from images.registry.errors import RegistryError
from releases.attestations import dsse, referrers, sbom, statement
from releases.attestations.conftest import Keys, Shelf
from releases.attestations.errors import AttestationError
from releases.attestations.statement import Statement
from releases.attestations.verify import verify_signature
from releases.changelog.entry import Entry
from releases.record import Record
from tests.registry_faults import proxy as fault

CREATED = "2026-01-31T12:00:00Z"


@pytest.fixture
def statements(entry: Entry, record: Record) -> dict[str, Statement]:
    return statement.of_release(entry, record)


def attach(shelf: Shelf, one: Statement, key: Path) -> str:
    envelope = dsse.sign(one.encode(), key)
    kind = one.predicate_type
    return referrers.attach_envelope(shelf.registry, shelf.name, shelf.image, kind, CREATED, envelope).digest


def refused(shelf: Shelf, keys: list[Path], expected: dict[str, Statement] | None, message: str) -> None:
    with pytest.raises(AttestationError, match=message) as caught:
        verify_signature(shelf.registry, shelf.name, shelf.image.digest, keys, expected)
    assert str(caught.value).startswith(f"{shelf.registry.address}/{shelf.name}@{shelf.image.digest}: ")


@pytest.mark.parametrize("api", [False, True])
def test_attached_and_verified(shelf: Shelf, ours: Keys, statements: dict[str, Statement], api: bool) -> None:
    shelf.proxy.referrers_api = api
    made = [attach(shelf, one, ours.private) for one in statements.values()]
    for keys in ([ours.public], [ours.ssh_public]):
        found = verify_signature(shelf.registry, shelf.name, shelf.image.digest, keys, statements)
        assert [(one.kind, one.digest, one.key) for one in found] == [
            ("SBOM", made[0], keys[0]), ("provenance", made[1], keys[0]),
        ]
    assert (fallback_tag(shelf.image.digest) in shelf.registry.tags(shelf.name)) is not api


def test_attached_again_changes_nothing(shelf: Shelf, ours: Keys, statements: dict[str, Statement]) -> None:
    first = [attach(shelf, one, ours.private) for one in statements.values()]
    before = shelf.registry.manifest(shelf.name, fallback_tag(shelf.image.digest))
    assert [attach(shelf, one, ours.ssh_private) for one in statements.values()] == first
    assert shelf.registry.manifest(shelf.name, fallback_tag(shelf.image.digest)) == before


def test_no_signature_at_all(shelf: Shelf, ours: Keys) -> None:
    refused(shelf, [ours.public], None, "has no signature at all; moet release publish signs and attaches")


def test_signatures_that_were_deleted(shelf: Shelf, ours: Keys, statements: dict[str, Statement]) -> None:
    for one in statements.values():
        attach(shelf, one, ours.private)
    listed = shelf.registry.referrers(shelf.name, shelf.image.digest)
    shelf.proxy.add(fault.answers(404), "GET", f"/manifests/{listed[0].digest}")
    refused(shelf, [ours.public], statements, "no SBOM that holds: none is attached")
    shelf.proxy.add(fault.answers(404), "GET", f"/manifests/{listed[1].digest}")
    refused(shelf, [ours.public], statements, "has no signature any more: 2 are listed and were deleted")


def test_no_key(shelf: Shelf) -> None:
    refused(shelf, [], None, "no public key was given to verify with; name one with --key")


def test_an_unknown_key(shelf: Shelf, ours: Keys, theirs: Keys, statements: dict[str, Statement]) -> None:
    for one in statements.values():
        attach(shelf, one, theirs.private)
    refused(shelf, [ours.public], statements, "no SBOM and provenance that holds: .* is signed by an unknown key")
    verify_signature(shelf.registry, shelf.name, shelf.image.digest, [ours.public, theirs.public], statements)


def test_one_is_missing(shelf: Shelf, ours: Keys, statements: dict[str, Statement]) -> None:
    attach(shelf, statements[sbom.PREDICATE], ours.private)
    refused(shelf, [ours.public], statements, "no provenance that holds: none is attached")


def test_another_image(shelf: Shelf, ours: Keys, statements: dict[str, Statement]) -> None:
    other = "sha256:" + "3" * 64
    for one in statements.values():
        attach(shelf, replace(one, digest=other), ours.private)
    refused(shelf, [ours.public], None, f"is about another image, toy:vllm0.33.0-r1 {other}")


def test_altered(shelf: Shelf, ours: Keys, theirs: Keys, statements: dict[str, Statement]) -> None:
    attach(shelf, statements[sbom.PREDICATE], theirs.private)
    envelope = json.loads(dsse.sign(statements[sbom.PREDICATE].encode(), ours.private))
    forged = json.loads(dsse.sign(replace(statements[sbom.PREDICATE], predicate={}).encode(), ours.private))
    data = json.dumps(envelope | {"payload": forged["payload"]}).encode()
    referrers.attach_envelope(shelf.registry, shelf.name, shelf.image, sbom.PREDICATE, None, data)
    refused(shelf, [ours.public], None, "is altered: its signature does not fit its content")


def test_other_facts_than_the_record(shelf: Shelf, ours: Keys, entry: Entry, record: Record) -> None:
    said = statement.of_release(replace(entry, commit="f" * 40), record)
    for one in said.values():
        attach(shelf, one, ours.private)
    wanted = statement.of_release(entry, record)
    where = r"buildDefinition.resolvedDependencies\[0\].digest.gitCommit"
    differs = f"{where} is f{{40}}, {entry.commit} was expected"
    refused(shelf, [ours.public], wanted, f"no provenance that holds: .*{differs}")


def test_another_component_than_the_record(shelf: Shelf, ours: Keys, statements: dict[str, Statement]) -> None:
    bill = json.loads(json.dumps(statements[sbom.PREDICATE].predicate))
    del bill["components"][0]
    for one in (replace(statements[sbom.PREDICATE], predicate=bill), *statements.values()):
        if one is not statements[sbom.PREDICATE]:
            attach(shelf, one, ours.private)
    refused(shelf, [ours.public], statements, "no SBOM that holds: .*component deb:bash.* is missing")


def test_what_a_library_writes_otherwise_is_the_same(
    shelf: Shelf, ours: Keys, statements: dict[str, Statement]
) -> None:
    bill = {**statements[sbom.PREDICATE].predicate, "annotations": [], "version": 2}
    for one in (replace(statements[sbom.PREDICATE], predicate=bill), *list(statements.values())[1:]):
        attach(shelf, one, ours.private)
    assert len(verify_signature(shelf.registry, shelf.name, shelf.image.digest, [ours.public], statements)) == 2


def test_strangers_beside_ours_do_no_harm(
    shelf: Shelf, ours: Keys, theirs: Keys, statements: dict[str, Statement]
) -> None:
    """Whoever may write to the registry can attach anything: that must neither convince nor block."""
    attach(shelf, replace(statements[sbom.PREDICATE], predicate={"evil": True}), theirs.private)
    image, registry, name = shelf.image, shelf.registry, shelf.name
    referrers.attach(registry, name, image, referrers.ARTIFACT_TYPE, dsse.MEDIA_TYPE, b"no envelope")
    referrers.attach(registry, name, image, "application/vnd.other", "text/plain", b"a comment")
    referrers.attach(registry, name, image, referrers.ARTIFACT_TYPE, "text/plain", b"no envelope either")
    for one in statements.values():
        attach(shelf, one, ours.private)
    assert len(verify_signature(registry, name, image.digest, [ours.public], statements)) == 2
    listed = json.loads(registry.manifest(name, fallback_tag(image.digest))[1])["manifests"]
    assert len(listed) == 6


def test_an_entry_that_refers_to_another_image_is_left_out(
    shelf: Shelf, ours: Keys, statements: dict[str, Statement]
) -> None:
    """The list of referrers is a tag that anybody writes: what it lists must say itself what it refers to."""
    for one in statements.values():
        attach(shelf, one, ours.private)
    listed = shelf.registry.manifest(shelf.name, fallback_tag(shelf.image.digest))[1]
    other = "sha256:" + "4" * 64
    shelf.registry.push_manifest(shelf.name, fallback_tag(other), INDEX, listed)
    assert len(shelf.registry.referrers(shelf.name, other)) == 2
    assert referrers.fetch(shelf.registry, shelf.name, other) == []


def test_a_damaged_attestation_is_told_from_none(shelf: Shelf, ours: Keys, statements: dict[str, Statement]) -> None:
    for one in statements.values():
        attach(shelf, one, ours.private)
    shelf.proxy.add(fault.alters_answer(fault.flips), "GET", "/blobs/")
    with pytest.raises(RegistryError, match="the registry sent bytes with digest"):
        verify_signature(shelf.registry, shelf.name, shelf.image.digest, [ours.public], statements)
