"""Where an image comes from: SLSA provenance v1, without a clock or a host in it."""

from typing import Any

from releases.attestations import identity
from releases.changelog.entry import Entry
from releases.record import Record
from releases.tree import build

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:moet:bazel-image:v1"
BUILDER = "urn:moet:builder:v1"


def provenance(entry: Entry, record: Record) -> dict[str, Any]:
    """The predicate: the commit, the target that was built of it, and every input by its hash."""
    inputs: list[dict[str, Any]] = [{"name": "moet", "digest": {"gitCommit": entry.commit}}]
    for pin in record.moet.pins:
        known = {"sha256": pin.sha256, "gitCommit": pin.commit}
        inputs.append(
            {
                "name": pin.file or pin.name,
                "uri": identity.purl(pin),
                "digest": {name: value for name, value in known.items() if value},
            }
        )
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"target": build.target(entry.tag), "config": "release"},
            "resolvedDependencies": inputs,
        },
        "runDetails": {"builder": {"id": BUILDER}},
    }
