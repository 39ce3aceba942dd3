"""docs/ledger.md, from the evidence."""

from collections.abc import Iterator
from pathlib import Path

from releases.ledger import artifacts
from releases.ledger.evidence import PATH as EVIDENCE
from releases.ledger.evidence import Evidence, Row

PATH = Path("docs/ledger.md")

_HEAD = f"""# Ledger

What is bit-identical when it is made again, and what is not. Written by `bazel run //releases/ledger:rebuild`, which
makes everything twice; do not edit. The figures are in `{EVIDENCE}`.
"""

_FOOT = """
A folder's SHA-256 is that of the sorted list of its files and their SHA-256. An image's is its manifest digest, which
covers its layers; every blob of both layouts was held against its name. The envelope is signed with a key that the
program brings.
"""


def text(evidence: Evidence) -> str:
    """Returns the whole page."""
    return "\n".join(_page(evidence))


def _page(evidence: Evidence) -> Iterator[str]:
    about = evidence.about
    yield _HEAD
    changed = f", with {len(about['modified'])} files changed since" if about["modified"] else ""
    machine = about["hardware"]
    yield f"Seen on {about['date']} at commit {about['commit']}{changed}:"
    yield f"{machine['cpu']}, {machine['cores']} cores, {machine['memory'] / 2**30:.0f} GiB;"
    yield f"{about['software']['kernel']}, CPython {about['software']['python']}, {about['bazel']}.\n"
    yield "| build | where |\n|---|---|"
    yield from (f"| {name} | {where} |" for name, where in about["builds"].items())
    same = sum(row.same for row in evidence.rows)
    yield f"\n{same} of {len(evidence.rows)} artifacts are bit-identical."
    for group in dict.fromkeys(row.group for row in evidence.rows):
        yield f"\n## {group}\n\n| artifact | class | SHA-256 |\n|---|---|---|"
        yield from (_row(row) for row in evidence.rows if row.group == group)
    yield "\n## Not the same twice, by design\n\n| artifact | why |\n|---|---|"
    yield from (f"| {name} | {why} |" for name, why in artifacts.DIFFERS)
    yield _FOOT


def _row(row: Row) -> str:
    name = f"{row.name}<br>`{row.target}`" if row.target else row.name
    first, second = (f"`{digest.removeprefix('sha256:')}`" for digest in (row.first, row.second))
    return f"| {name} | bit-identical | {first} |" if row.same else f"| {name} | **differs** | {first}, then {second} |"
