"""The table of families in kernels/README.md, from the gates' records and the receipts.

usage: bazel run //kernels:overview
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.files import atomic

PAGE = Path("kernels/README.md")
RECEIPTS = Path("docs/evidence/kernels")
BEGIN = "<!-- Written by `bazel run //kernels:overview`; do not edit. -->"
END = "<!-- End of what is written. -->"

_TESTS = ("tests", "memcheck", "racecheck")


@dataclass(frozen=True)
class Family:
    """A family: what it computes, its class of numerics, and the SHA-256 of the library as it is built now."""

    name: str
    computes: str
    numerics: str
    library_sha256: str


def families(about: Mapping[str, Mapping[str, str]], libraries: Sequence[Path]) -> list[Family]:
    """Puts together kernels/families.bzl and the built libraries. Raises KeyError where a library is absent."""
    built = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in libraries}
    return [Family(name, words["computes"], words["numerics"], built[name]) for name, words in about.items()]


def receipts(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Returns the receipts in a folder by file name, the newest last."""
    return [(path.stem, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def table(
    found: Sequence[Family], gates: Mapping[str, Mapping[str, Any]], recorded: Sequence[tuple[str, dict[str, Any]]]
) -> str:
    """Returns the lines between BEGIN and END.

    Args:
        found: the families.
        gates: the gate's record of each, by name.
        recorded: receipts as receipts() has them; the newest that has a family, and its present library if any does,
            speaks for it.
    """
    return "\n".join(_lines(found, gates, recorded))


def _lines(
    found: Sequence[Family], gates: Mapping[str, Mapping[str, Any]], recorded: Sequence[tuple[str, dict[str, Any]]]
) -> Iterator[str]:
    yield "| family | computes | numerics | ran on | passed there | share of the floor |"
    yield "|---|---|---|---|---|---|"
    for family in found:
        link = f"[{family.name}]({family.name}/README.md)"
        yield f"| {link} | {family.computes} | {family.numerics} | {' | '.join(_ran(family, recorded))} |"
    yield ""
    yield "| code for sm_120a | kernels | registers | KiB shared | blocks | matrix instructions | assembled back |"
    yield "|---|---|---|---|---|---|---|"
    for family in found:
        yield f"| {family.name} | {' | '.join(_gate(gates[family.name]))} |"


def _ran(family: Family, recorded: Sequence[tuple[str, dict[str, Any]]]) -> tuple[str, str, str]:
    having = [(name, receipt) for name, receipt in recorded if family.name in receipt["families"]]
    if not having:
        return "nothing yet", "", ""
    same = [one for one in having if one[1]["families"][family.name]["library_sha256"] == family.library_sha256]
    name, receipt = (same or having)[-1]
    results = receipt["families"][family.name]
    machine = receipt["machine"]
    where = f"[{machine['gpu']}, {receipt['date']}](../{RECEIPTS}/{name}.md)"
    where += "" if same else ", an earlier build"
    passed = ", ".join(f"{results[test]['passed']} {test}" for test in _TESTS if test in results)
    return where, passed, _share(results.get("bench", {}).get("rows", []))


def _share(rows: Sequence[Mapping[str, Any]]) -> str:
    """Range and median over the rows of a bench, of dependent launches where it has them."""
    shares = [row.get("dependent share", row.get("share")) for row in rows]
    measured = [float(share) for share in shares if share is not None]
    if not measured:
        return ""
    return f"{min(measured):.0%} to {max(measured):.0%}, median {statistics.median(measured):.0%}"


def _gate(record: Mapping[str, Any]) -> tuple[str, ...]:
    kernels = list(record["kernels"].values())
    kinds = {
        opcode.split(".")[0]
        for kernel in kernels
        for opcode in kernel["instructions"]
        if opcode.startswith(("HMMA", "IMMA", "OMMA", "QMMA"))
    }
    counts = _range([kernel["matrix_instructions"] for kernel in kernels])
    return (
        str(len(kernels)),
        _range([kernel["registers"] for kernel in kernels]),
        _range([-(-(kernel["static_shared"] + kernel["dynamic_shared"]) // 1024) for kernel in kernels]),
        _range([kernel["blocks_a_multiprocessor"] for kernel in kernels]),
        f"{', '.join(sorted(kinds))} {counts}" if kinds else "none",
        f"{record['coverage_percent']} %",
    )


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def replaced(page: str, lines: str) -> str:
    r"""Returns a page with other lines between BEGIN and END.

    Raises ValueError where it does not have both, once each and in this order.

    >>> replaced(f"a\n{BEGIN}\nold\n{END}\nz", "new") == f"a\n{BEGIN}\nnew\n{END}\nz"
    True
    """
    before, begin, rest = page.partition(BEGIN + "\n")
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"{PAGE}: expected one line {BEGIN!r}, and one {END!r} after it")
    return f"{before}{begin}{lines}\n{end}{after}"


def current(root: Path, about: Mapping[str, Mapping[str, str]], libraries: Sequence[Path]) -> str:
    """Returns the page as it should be; `root` is that of the tree."""
    gates = {name: json.loads((root / f"kernels/{name}/gate.json").read_text()) for name in about}
    lines = table(families(about, libraries), gates, receipts(root / RECEIPTS))
    return replaced((root / PAGE).read_text(), lines)


def main() -> int:
    """Runs the command line above; returns the exit status."""
    parser = argparse.ArgumentParser(description="write the table of families in kernels/README.md")
    parser.add_argument("--about", type=json.loads, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--library", type=Path, action="append", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    try:
        page = current(root, args.about, args.library)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    atomic.write(root / PAGE, page.encode())
    print(f"{PAGE}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
