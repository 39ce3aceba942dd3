"""The bill of materials and the provenance: valid, complete, and the same bytes every time."""

import dataclasses
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from referencing.jsonschema import DRAFT7

from images.manifest import model
from releases.attestations import provenance, sbom, statement
from releases.attestations.errors import AttestationError
from releases.changelog.entry import Entry
from releases.record import Record
from tests.release.toy import R1, Toy

_AGAIN = """
import sys
from pathlib import Path
from releases.attestations import statement
from releases.known import Known
from releases.tag import Tag
known, tag = Known.find(Path(sys.argv[1])), Tag.parse(sys.argv[2])
for one in statement.of_release(known.entry(tag), known.record(tag)).values():
    sys.stdout.buffer.write(one.encode())
"""


@pytest.fixture
def bill(record: Record) -> dict[str, Any]:
    return dict(json.loads(sbom.sbom(record)))


def test_is_valid_cyclonedx(bill: dict[str, Any]) -> None:
    folder = resources.files("cyclonedx.schema").joinpath("_res")
    schemas = {name: json.loads(folder.joinpath(name).read_bytes()) for name in (
        "bom-1.6.SNAPSHOT.schema.json", "spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json",
    )}
    known = [(schema["$id"], DRAFT7.create_resource(schema)) for schema in schemas.values()]
    registry: referencing.Registry[Any] = referencing.Registry().with_resources(known)
    validator = jsonschema.Draft7Validator(schemas["bom-1.6.SNAPSHOT.schema.json"], registry=registry)
    assert [error.message for error in validator.iter_errors(bill)] == []
    assert [error.message for error in validator.iter_errors({**bill, "version": "one"})] != []


def test_is_about_the_image(bill: dict[str, Any], record: Record) -> None:
    image = bill["metadata"]["component"]
    assert image["hashes"] == [{"alg": "SHA-256", "content": record.digest.removeprefix("sha256:")}]
    assert image["purl"] == f"pkg:oci/toy@{record.digest}?tag=vllm0.33.0-r1"
    assert bill["metadata"]["timestamp"].startswith("2026-01-31T12:00:00")
    facts = {one["name"]: one["value"] for one in image["properties"]}
    assert facts["moet:commit"] == record.moet.commit
    assert facts["moet:step:1"] == "tiers" and facts["moet:step:2"] == "next"


def test_has_every_pin_with_its_hash(bill: dict[str, Any], record: Record) -> None:
    found = {one["name"]: one for one in bill["components"]}
    assert {one["name"] for one in bill["components"]} == {pin.name for pin in record.moet.pins}
    assert found["vllm"]["purl"] == "pkg:pypi/vllm@0.33.0?file_name=vllm-0.33.0.whl"
    assert found["bash"]["purl"] == "pkg:deb/debian/bash@5.2.15-2%2Bb13"
    assert found["deepgemm"]["pedigree"] == {"commits": [{"uid": "0820030"}]}
    assert found["vllm"]["pedigree"]["notes"] == "patched by tiers.patch, next.patch"
    hashes = {pin.name: [{"alg": "SHA-256", "content": pin.sha256}] for pin in record.moet.pins if pin.sha256}
    assert {name: one["hashes"] for name, one in found.items() if "hashes" in one} == hashes
    (whole,) = [one["dependsOn"] for one in bill["dependencies"] if one["ref"] == record.digest]
    assert set(whole) == {one["bom-ref"] for one in bill["components"]}


def test_a_debs_architecture_and_odd_names() -> None:
    pins = [
        model.Pin("libstdc++6", "1:2~3", "deb", "libstdc++6_1%3a2~3_amd64.deb", "0" * 64),
        model.Pin("Odd.Na_me", "1.0+cu130", "wheel", "Odd.Name-1.0+cu130.whl", "1" * 64),
    ]
    manifest = model.Manifest(
        "moet.manifest.v1", "l", "l:b1-r1", model.Base("b", "1", "c"), "/s", (), tuple(pins), (), (), (), ()
    )
    found = json.loads(sbom.document(manifest, None, "sha256:" + "2" * 64, None))
    assert sorted(one["purl"] for one in found["components"]) == [
        "pkg:deb/debian/libstdc%2B%2B6@1:2~3?arch=amd64",
        "pkg:pypi/odd.na-me@1.0%2Bcu130?file_name=Odd.Name-1.0%2Bcu130.whl",
    ]
    assert "purl" not in found["metadata"]["component"]
    assert found["metadata"]["timestamp"].startswith("1970-01-01")
    with pytest.raises(AttestationError, match="'yesterday': is no time"):
        sbom.document(manifest, None, "sha256:" + "2" * 64, "yesterday")


def test_provenance_names_commit_target_and_inputs(entry: Entry, record: Record) -> None:
    predicate = provenance.provenance(entry, record)
    definition = predicate["buildDefinition"]
    assert definition["buildType"] == "urn:moet:bazel-image:v1"
    assert definition["externalParameters"]["config"] == "release"
    assert definition["externalParameters"]["target"].startswith("//images/")
    first, *inputs = definition["resolvedDependencies"]
    assert first == {"name": "moet", "digest": {"gitCommit": entry.commit}}
    assert len(inputs) == len(record.moet.pins) and all(one["digest"] for one in inputs)
    assert predicate["runDetails"] == {"builder": {"id": "urn:moet:builder:v1"}}


def test_base_and_steps_have_different_targets(entry: Entry, record: Record) -> None:
    base = dataclasses.replace(entry, tag=dataclasses.replace(entry.tag, number=0))
    made = [provenance.provenance(one, record)["buildDefinition"]["externalParameters"] for one in (entry, base)]
    assert made[0]["target"] != made[1]["target"]


def test_statements_are_about_the_image(entry: Entry, record: Record) -> None:
    made = statement.of_release(entry, record)
    assert set(made) == {"https://cyclonedx.org/bom", "https://slsa.dev/provenance/v1"}
    for kind, one in made.items():
        document = json.loads(one.encode())
        assert document["_type"] == "https://in-toto.io/Statement/v1"
        assert document["predicateType"] == kind
        assert document["subject"] == [{"name": R1, "digest": {"sha256": record.digest.removeprefix("sha256:")}}]
        assert statement.Statement.decode(one.encode()) == one


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_on_another_day_writes_the_same_bytes(
    toy: Toy, entry: Entry, record: Record, tmp_path: Path, seed: str
) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed, "TZ": f"UTC-{seed}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _AGAIN, str(toy.root), R1],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"".join(one.encode() for one in statement.of_release(entry, record).values())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"_type": "https://in-toto.io/Statement/v0.1"}',
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": [], "predicateType": "a", "predicate": {}}',
        b'{"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "a", "digest": {"sha512": "a"}}],'
        b' "predicateType": "a", "predicate": {}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_statement(text: bytes) -> None:
    with pytest.raises(AttestationError, match="no in-toto statement"):
        statement.Statement.decode(text)
