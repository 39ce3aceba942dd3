"""Links of Markdown pages, and names of pages in text: which of them lead nowhere."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAME = re.compile(r"(?<![\w./-])(docs/[\w-]+\.md|[a-z]\w*/[\w/]+/README\.md)(#[\w-]+)?")


def prose(text: str) -> str:
    """Returns a page without its blocks of code."""
    return _FENCED.sub("", text)


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them: lower case, hyphens for blanks."""
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in _HEADING.findall(prose(text)))
    return {title.strip().replace(" ", "-") for title in plain}


def names(text: str) -> set[str]:
    """Returns the pages that a text names by their path from the root of the tree, with anchors where it has them."""
    return {path + anchor for path, anchor in _NAME.findall(text)}


def links(page: str, text: str) -> set[str]:
    """Returns what the links of the page at path `page` lead to, from the root of the tree; the web's are left out."""
    targets = (target for target in _LINK.findall(_CODE.sub("", prose(text))) if "://" not in target)
    split = (target.partition("#") for target in targets)
    folder = posixpath.dirname(page)
    return {(posixpath.normpath(posixpath.join(folder, path)) if path else page) + sep + to for path, sep, to in split}


def dead(root: Path, targets: set[str]) -> Iterator[str]:
    """Yields those of `targets` that are no file or folder below `root`, or whose anchor is no heading of the page."""
    for target in sorted(targets):
        path, _, anchor = target.partition("#")
        if not (root / path).exists() or (anchor and anchor not in anchors((root / path).read_text())):
            yield target
