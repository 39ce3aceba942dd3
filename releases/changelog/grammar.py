"""The grammar of CHANGELOG.md: read strictly, every fault with its line, and written.

    # Changelog
    Paragraphs: what this file is.
    ## [Unreleased]
    ### LINE
    #### Added | Changed | Deprecated | Removed | Fixed | Security
    - Bullets.
    ## [LINE:BASE-rN] - YYYY-MM-DD
    One paragraph: what the release is.
    - Digest: `sha256:...` and the other fields of fields.READERS, each once, in that order
    ### Added | Changed | ... | Evidence
    - Bullets.

Blank lines stand between blocks. Releases are the newest first.
"""

import datetime
import re
from typing import Any

from releases.changelog import blocks, fields
from releases.changelog.blocks import Block
from releases.changelog.entry import EVIDENCE, SECTIONS, Bullet, Changelog, Entry
from releases.changelog.problem import Problem, ProblemsError
from releases.tag import Tag
from tools.cli.errors import UserError

TITLE = "Changelog"
UNRELEASED = "[Unreleased]"
_RELEASE = re.compile(r"\[(?P<tag>[^\[\]]+)\] - (?P<date>\d{4}-\d{2}-\d{2})")
_LINE = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")

Sections = dict[str, tuple[Bullet, ...]]


def parse(text: str) -> Changelog:
    """Reads CHANGELOG.md. Raises ProblemsError with all that does not fit the grammar."""
    changelog, problems = scan(text)
    if problems:
        raise ProblemsError(problems)
    return changelog


def scan(text: str) -> tuple[Changelog, list[Problem]]:
    """Reads what can be read of CHANGELOG.md; also returns what does not fit the grammar.

    A release with a fault in its heading or its fields is left out of the result.
    """
    problems: list[Problem] = []
    found = blocks.read(text, problems)
    head = next((index for index, block in enumerate(found) if (block.kind, block.level) == ("heading", 2)), len(found))
    preamble = _preamble(found[:head], problems)
    unreleased: dict[str, Sections] = {}
    entries: list[Entry] = []
    seen: dict[Tag, int] = {}
    first = True
    for heading, below in blocks.sections(found[head:], 2):
        if heading.text == UNRELEASED:
            if not first:
                problems.append(Problem(heading.line, f"{UNRELEASED} stands once, before all releases"))
            unreleased = _unreleased(below, problems)
        elif entry := _entry(heading, below, problems):
            if entry.tag in seen:
                problems.append(Problem(entry.line, f"{entry.tag}: is released already, in line {seen[entry.tag]}"))
            seen.setdefault(entry.tag, entry.line)
            entries.append(entry)
        first = False
    return Changelog(preamble, unreleased, tuple(entries)), sorted(problems)


def render(changelog: Changelog) -> str:
    """Writes CHANGELOG.md; parse() gives back the same."""
    parts = [f"# {TITLE}", *([changelog.preamble] if changelog.preamble else []), f"## {UNRELEASED}"]
    for line, sections in changelog.unreleased.items():
        parts.append(f"### {line}")
        parts += _render_sections(sections, 4)
    parts += [render_entry(entry).rstrip("\n") for entry in changelog.entries]
    return "\n\n".join(parts) + "\n"


def render_entry(entry: Entry) -> str:
    """Writes one release, from its heading to a final newline."""
    values = {
        "Digest": f"`{entry.digest}`",
        "Image ID": f"`{entry.image_id}`",
        "Commit": f"`{entry.commit}`",
        "Base": fields.write_base(entry.base),
        "Steps": fields.write_steps(entry.steps),
        "Follows": str(entry.follows or fields.NONE),
        "Rollback": fields.write_rollback(entry.rollback, entry.rollback_switches),
    }
    parts = [f"## [{entry.tag}] - {entry.date.isoformat()}", entry.summary]
    parts.append("\n".join(f"- {name}: {values[name]}" for name in fields.READERS))
    evidence = {EVIDENCE: entry.evidence} if entry.evidence else {}
    parts += _render_sections({**entry.sections, **evidence}, 3)
    return "\n\n".join(parts) + "\n"


def insert(text: str, entry: Entry, takes_unreleased: bool) -> str:
    """Puts a new release before the others, and leaves every other line of `text` as it is.

    With `takes_unreleased`, what [Unreleased] has of the entry's line goes (it is in the entry now).
    """
    lines = text.rstrip("\n").split("\n")
    problems: list[Problem] = []
    headings = [block for block in blocks.read(text, problems) if block.kind == "heading" and block.level <= 3]
    top = [block for block in headings if block.level == 2]
    after = next((block.line for block in top if block.text != UNRELEASED), len(lines) + 1)
    before, rest = lines[: after - 1], lines[after - 1 :]
    if takes_unreleased:
        taken = [block for block in headings if block.line < after and (block.level, block.text) == (3, entry.tag.line)]
        for block in reversed(taken):
            end = next((other.line for other in headings if other.line > block.line), after)
            del before[block.line - 1 : end - 1]
    parts = ["\n".join(part).strip("\n") for part in (before, render_entry(entry).split("\n"), rest)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _preamble(found: list[Block], problems: list[Problem]) -> str:
    if not found or (found[0].kind, found[0].level, found[0].text) != ("heading", 1, TITLE):
        problems.append(Problem(found[0].line if found else 1, f"expected '# {TITLE}' first"))
    paragraphs = []
    for block in found[1:]:
        if block.kind == "paragraph":
            paragraphs.append(block.text)
        else:
            problems.append(Problem(block.line, f"{block.text!r}: only paragraphs stand before the first '## '"))
    return "\n\n".join(paragraphs)


def _unreleased(found: list[Block], problems: list[Problem]) -> dict[str, Sections]:
    result: dict[str, Sections] = {}
    named = False
    for block in found:
        named = named or (block.kind, block.level) == ("heading", 3)
        if not named:
            problems.append(Problem(block.line, f"{block.text!r}: expected '### LINE' first"))
    for heading, below in blocks.sections(found, 3):
        if not _LINE.fullmatch(heading.text):
            problems.append(Problem(heading.line, f"{heading.text!r}: expected the name of a line, such as dsv41"))
        elif heading.text in result:
            problems.append(Problem(heading.line, f"{heading.text}: stands twice below {UNRELEASED}"))
        else:
            result[heading.text] = _bullets(below, 4, SECTIONS, problems)
    return result


def _entry(heading: Block, below: list[Block], problems: list[Problem]) -> Entry | None:
    start = next((index for index, block in enumerate(below) if block.kind == "heading"), len(below))
    head = below[:start]
    sections = _bullets(below[start:], 3, (*SECTIONS, EVIDENCE), problems)
    named = _heading(heading, problems)
    values = _fields(heading, [block for block in head if block.kind == "item"], problems)
    paragraphs = [block for block in head if block.kind == "paragraph"]
    if len(paragraphs) != 1 or head[0].kind != "paragraph":
        problems.append(Problem(heading.line, "expected one paragraph below the heading: what this release is"))
        return None
    if named is None or values is None:
        return None
    rollback, switches = values["Rollback"]
    return Entry(
        tag=named[0],
        date=named[1],
        summary=paragraphs[0].text,
        digest=values["Digest"],
        image_id=values["Image ID"],
        commit=values["Commit"],
        base=values["Base"],
        steps=values["Steps"],
        follows=values["Follows"],
        rollback=rollback,
        rollback_switches=switches,
        evidence=sections.pop(EVIDENCE, ()),
        sections=sections,
        line=heading.line,
    )


def _heading(heading: Block, problems: list[Problem]) -> tuple[Tag, datetime.date] | None:
    found = _RELEASE.fullmatch(heading.text)
    try:
        if not found:
            raise UserError(f"{heading.text!r}: expected '## {UNRELEASED}' or '## [LINE:BASE-rN] - YYYY-MM-DD'")
        return Tag.parse(found["tag"]), datetime.date.fromisoformat(found["date"])
    except (UserError, ValueError) as error:
        problems.append(Problem(heading.line, str(error)))
        return None


def _fields(heading: Block, items: list[Block], problems: list[Problem]) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    sound = True
    for item in items:
        name, colon, value = item.text.partition(": ")
        try:
            if not colon or name not in fields.READERS:
                raise UserError(f"{item.text[:60]!r}: expected '- FIELD: value' of {', '.join(fields.READERS)}")
            if name in values:
                raise UserError(f"{name} stands twice")
            values[name] = None
            values[name] = fields.READERS[name](value)
        except UserError as error:
            problems.append(Problem(item.line, str(error) if name not in fields.READERS else f"{name}: {error}"))
            sound = False
    missing = [name for name in fields.READERS if name not in values]
    if missing:
        problems.append(Problem(heading.line, f"{heading.text}: lacks {', '.join(missing)}"))
    elif list(values) != list(fields.READERS):
        problems.append(Problem(items[0].line, f"expected the fields in the order {', '.join(fields.READERS)}"))
    return values if sound and not missing else None


def _bullets(found: list[Block], level: int, allowed: tuple[str, ...], problems: list[Problem]) -> Sections:
    result: dict[str, tuple[Bullet, ...]] = {}
    marks = "#" * level
    inside = False
    for block in found:
        inside = inside or block.kind == "heading"
        if block.kind == "heading" and block.level != level:
            problems.append(Problem(block.line, f"{block.text!r}: expected a heading of level {level} ('{marks} ')"))
        elif not inside:
            problems.append(Problem(block.line, f"{block.text[:60]!r}: expected '{marks} {allowed[0]}' first"))
    for heading, below in blocks.sections(found, level):
        if heading.text not in allowed:
            problems.append(Problem(heading.line, f"{heading.text!r}: expected one of {', '.join(allowed)}"))
        elif heading.text in result:
            problems.append(Problem(heading.line, f"{heading.text} stands twice"))
        loose = [block for block in below if block.kind == "paragraph"]
        problems += [Problem(block.line, f"{block.text[:60]!r}: expected a bullet ('- ...')") for block in loose]
        bullets = tuple(Bullet(block.text, block.line) for block in below if block.kind == "item")
        if not bullets:
            problems.append(Problem(heading.line, f"{heading.text}: is empty: take the heading out or fill it"))
        if heading.text in allowed:
            result[heading.text] = bullets
    return result


def _render_sections(sections: Sections, level: int) -> list[str]:
    parts = []
    for name, bullets in sections.items():
        parts += [f"{'#' * level} {name}", "\n".join(f"- {bullet.text}" for bullet in bullets)]
    return parts
