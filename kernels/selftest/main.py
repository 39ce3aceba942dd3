"""Runs every family of kernels against its oracle in numpy, on every GPU that torch sees.

usage: python3 -m moet_kernels.selftest [--family NAME]... [--json]

In the tree it is `MOET_KERNELS=FOLDER python3 -m kernels.selftest`, FOLDER having the libraries. A line a family and
card goes to stdout; with --json to stderr, and stdout gets one line, the result (SCHEMA) or the error. Exit status:
0 all right, 1 a family is not, 2 wrong usage, 3 there is nothing to test on.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import card, outcome

SCHEMA = "moet.selftest.v1"
OK, FAILED, CANNOT_TEST = 0, 1, 3


def families() -> list[str]:
    """The families that have cases here, in order of name."""
    return sorted(path.stem for path in (Path(__file__).parent / "cases").glob("*.py"))


def run(names: Sequence[str], cards: Sequence[card.Card]) -> Iterator[outcome.Outcome]:
    """Tests the families in the given order, each on every card, and yields what came out.

    What a family leaves unusable, those behind it are not tested on: that is their outcome.
    """
    lost: dict[card.Card, str] = {}
    for name in names:
        for one in cards:
            if one in lost:
                yield outcome.Outcome(name, one, f"not tested: {lost[one]} left this card unusable to the process")
                continue
            found = outcome.of(name, one)
            if found.problem is not None and not one.is_usable():
                lost[one] = name
            yield found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    options = _parser().parse_args(arguments)
    lines = sys.stderr if options.json else sys.stdout
    try:
        cards = card.visible()
    except card.CannotTestError as error:
        if options.json:
            print(_document([], str(error)))
        else:
            print(f"moet: selftest: {error}", file=sys.stderr)
        return CANNOT_TEST
    outcomes = []
    for found in run(options.family or families(), cards):
        print(f"moet: selftest: {found.line()}", file=lines, flush=True)
        outcomes.append(found)
    failed = sorted({found.family for found in outcomes if found.problem is not None})
    verdict = f"FAILED: {', '.join(failed)}" if failed else "ok"
    tested = len({found.family for found in outcomes})
    print(f"moet: selftest: {tested} {_plural(tested, 'family', 'families')}, ", end="", file=lines)
    print(f"{len(cards)} {_plural(len(cards), 'card', 'cards')}: {verdict}", file=lines, flush=True)
    if options.json:
        print(_document(outcomes))
    return FAILED if failed else OK


def _document(outcomes: Sequence[outcome.Outcome], error: str | None = None) -> str:
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "ok": error is None and all(found.problem is None for found in outcomes),
        "error": error,
        "results": [found.document() for found in outcomes],
    }
    return json.dumps(document, sort_keys=True)


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"python3 -m {__package__}", description="test the kernels against their oracles on this machine's GPUs"
    )
    parser.add_argument("--family", action="append", choices=families(), help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="the result on stdout in one line, for programs")
    return parser
