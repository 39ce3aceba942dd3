"""The Markdown that CHANGELOG.md is made of: headings, list items and paragraphs, with their lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from releases.changelog.problem import Problem

_HEADING = re.compile(r"(#{1,6}) +(\S.*)")


@dataclass(frozen=True)
class Block:
    """A heading (of `level` 1 to 6), list item or paragraph: its text on one line, and its first line (1-based)."""

    kind: Literal["heading", "item", "paragraph"]
    text: str
    line: int
    level: int = 0


def read(text: str, problems: list[Problem]) -> list[Block]:
    """Splits `text` into blocks. Lines that belong to none are added to `problems`.

    A list item begins with "- " in the first column, and goes on over lines that are indented by two spaces.
    """
    blocks: list[Block] = []
    open_block: Block | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip()
        if not line:
            open_block = None
            continue
        if found := _HEADING.fullmatch(line):
            blocks.append(Block("heading", found[2], number, len(found[1])))
            open_block = None
            continue
        if line.startswith("- "):
            open_block = Block("item", line[2:].strip(), number)
            blocks.append(open_block)
            continue
        wants_indent = open_block is not None and open_block.kind == "item"
        if open_block is not None and line.startswith("  ") == wants_indent:
            open_block = Block(open_block.kind, f"{open_block.text} {line.strip()}", open_block.line)
            blocks[-1] = open_block
        elif open_block is None and line != "-" and not line.startswith((" ", "\t", "#", "*", "+", ">", "`")):
            open_block = Block("paragraph", line, number)
            blocks.append(open_block)
        else:
            what = "a heading, '- ' item (further lines indented by two spaces) or paragraph was expected"
            problems.append(Problem(number, f"{line.strip()[:60]!r}: {what}"))
            open_block = None
    return blocks


def sections(blocks: list[Block], level: int) -> Iterator[tuple[Block, list[Block]]]:
    """Yields each heading of `level` with the blocks below it, up to the next of that level or a higher one.

    What stands before the first is left out.
    """
    heading: Block | None = None
    below: list[Block] = []
    for block in blocks:
        if block.kind == "heading" and block.level <= level:
            if heading is not None:
                yield heading, below
            heading, below = (block if block.level == level else None), []
        else:
            below.append(block)
    if heading is not None:
        yield heading, below
