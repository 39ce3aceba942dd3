"""Whether what pip's and dpkg's records say about the image is true of its files; prints every fault.

RECORD files give a SHA-256 and a size for each path; dpkg's md5sums an MD5. All sizes are compared, and the bytes of
every path that two packages claim, of the overlaid files (argv[1] is the manifest) and of everything dpkg lists.
"""

import base64
import csv
import hashlib
import json
import os
import sys
from collections import defaultdict
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_SITE = Path("/usr/local/lib/python3.11/dist-packages")
_DPKG = Path("/var/lib/dpkg")


def _name(distribution: Distribution) -> str:
    return canonicalize_name(distribution.metadata["Name"])


def _hash(path: Path, algorithm: str) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).digest()


def _sha256(path: Path) -> str:
    return base64.urlsafe_b64encode(_hash(path, "sha256")).decode().rstrip("=")


def record_faults(manifest: dict[str, Any]) -> tuple[list[str], int]:
    """Faults of the RECORD files, and how many rows they have together."""
    faults, rows = [], 0
    claims: dict[Path, dict[str, str]] = defaultdict(dict)
    listed: set[Path] = set()
    overlaid = {Path(entry["path"]) for entry in manifest["files"] if entry["kind"] == "overlay"}
    for distribution in distributions(path=[str(_SITE)]):
        for name, digest, size in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            rows += 1
            path = Path(os.path.normpath(_SITE / name))
            listed.add(path)
            if not path.is_file():
                faults.append(f"{path}: in the RECORD of {_name(distribution)} but not in the image")
                continue
            if size and path.stat().st_size != int(size):
                faults.append(f"{path}: {path.stat().st_size} bytes, {size} in the RECORD of {_name(distribution)}")
            if digest:
                claims[path][_name(distribution)] = digest.removeprefix("sha256=")
    for path, owners in sorted(claims.items()):
        if len(set(owners.values())) > 1:
            faults.append(f"{path}: different bytes from {', '.join(sorted(owners))}")
        elif (len(owners) > 1 or path in overlaid) and _sha256(path) not in owners.values():
            faults.append(f"{path}: not the bytes in the RECORD of {', '.join(sorted(owners))}")
    faults += [f"{path}: overlaid, but in no RECORD" for path in sorted(overlaid - listed)]
    return faults, rows


def requirement_faults() -> tuple[list[str], int]:
    """Requirements that the installed versions do not meet, and how many requirements apply."""
    faults, checked = [], 0
    installed = {_name(distribution): distribution for distribution in distributions(path=[str(_SITE)])}
    for name, distribution in sorted(installed.items()):
        for text in distribution.requires or []:
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            checked += 1
            found = installed.get(canonicalize_name(requirement.name))
            if found is None:
                faults.append(f"{name} requires {requirement.name}, which is not installed")
            elif not requirement.specifier.contains(found.version, prereleases=True):
                wanted = f"{requirement.name}{requirement.specifier}"
                faults.append(f"{name} requires {wanted}, installed is {found.version}")
    return faults, checked


def debian_faults() -> tuple[list[str], int]:
    """Files with other bytes than dpkg's md5sums say, and how many paths they list."""
    faults = []
    claims: dict[str, dict[str, str]] = defaultdict(dict)
    for sums in sorted([*(_DPKG / "info").glob("*.md5sums"), *(_DPKG / "status.d").glob("*.md5sums")]):
        for line in sums.read_text().splitlines():
            digest, path = line.split(None, 1)
            claims[str(Path("/", path).parent.resolve() / Path(path).name)][sums.stem] = digest
    for path, owners in sorted(claims.items()):
        if len(set(owners.values())) > 1:
            faults.append(f"{path}: different bytes from {', '.join(sorted(owners))}")
        elif Path(path).is_file() and _hash(Path(path), "md5").hex() not in owners.values():
            faults.append(f"{path}: not the bytes of {', '.join(sorted(owners))}")
    return faults, len(claims)


def main() -> None:
    """Print the faults and the counts."""
    manifest = json.loads(Path(sys.argv[1]).read_bytes())
    report = {}
    for name, (faults, checked) in {
        "records": record_faults(manifest),
        "requirements": requirement_faults(),
        "debian": debian_faults(),
    }.items():
        report[name] = {"faults": faults, "checked": checked}
    print(json.dumps(report))


main()
