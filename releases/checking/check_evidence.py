"""Figures and evidence of a release's entry against the receipts that they link to."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from releases.changelog.entry import Entry
from releases.changelog.problem import Problem
from releases.checking.check_records import texts
from releases.cutting.draft import TODO
from releases.receipts import figures, receipt
from releases.receipts.receipt import Receipt
from tools.cli.errors import UserError


class Receipts:
    """The receipts of a tree, each read once. `digests` maps the images that are released to their tags."""

    def __init__(self, root: Path, digests: Mapping[str, str]) -> None:
        self._root = root
        self._digests = digests
        self._read: dict[str, Receipt | str] = {}

    def get(self, path: str) -> Receipt | str:
        """The receipt at `path` (from the root of the tree), or in one sentence what is wrong with it."""
        if path not in self._read:
            self._read[path] = self._load(path)
        return self._read[path]

    def _load(self, path: str) -> Receipt | str:
        if os.path.normpath(path) != path or not path.endswith(".json"):
            return f"expected a path of a .json file below {receipt.FOLDER}"
        try:
            found = receipt.read(self._root / path)
        except UserError as error:
            return str(error)
        if found.exit != 0:
            return f"is of a command that failed with exit status {found.exit}"
        if found.subject.digest not in self._digests:
            return f"is about {found.subject.digest}, which no release here has"
        tag = self._digests[found.subject.digest]
        if found.subject.tag not in (None, tag):
            return f"calls {found.subject.digest} {found.subject.tag}, it is {tag}"
        return found


def evidence(entry: Entry, receipts: Receipts) -> Iterator[Problem]:
    """What lacks a receipt, or is not in it."""
    for line, text in texts(entry):
        yield from _sentence(entry, line, text, receipts)
    backed = False
    for bullet in entry.evidence:
        paths = _paths(bullet.text)
        if not paths and TODO not in bullet.text:
            text = f"expected a link to a receipt below {receipt.FOLDER} (moet release receipt)"
            yield Problem(bullet.line, f"{entry.tag}: evidence without a receipt: {text}")
        found = [receipts.get(path) for path in paths]
        backed = backed or any(isinstance(one, Receipt) and one.subject.digest == entry.digest for one in found)
    if not backed:
        text = f"no bullet below Evidence links to a sound receipt about {entry.digest}"
        yield Problem(entry.line, f"{entry.tag}: is not backed: {text} (moet release receipt --tag {entry.tag})")


def _sentence(entry: Entry, line: int, text: str, receipts: Receipts) -> Iterator[Problem]:
    sound = []
    faulty = False
    for path in _paths(text):
        found = receipts.get(path)
        if isinstance(found, Receipt):
            sound.append(found)
        else:
            faulty = True
            yield Problem(line, f"{entry.tag}: {path}: {found}")
    for number in figures.figures(text):
        if not sound and not faulty:
            yield Problem(line, f"{entry.tag}: the figure {number} has no receipt: link to one in the same sentence")
        elif sound and not any(figures.occurs(number, one.output) for one in sound):
            yield Problem(line, f"{entry.tag}: the figure {number} is not in the output of the receipt it links to")


def _paths(text: str) -> list[str]:
    return [path for path in figures.links(text) if path.startswith(receipt.FOLDER + "/") or path.endswith(".json")]
