"""Figures in prose: numbers that claim a measurement, and must stand in a receipt.

A figure is a number that is followed by a unit (UNITS), by % or x, or, with at most three words in between, by "test",
"tests", "passed", "failed" and the like. Of a range ("2 to 3 ms", "20 of 20 passed") both ends are figures. Code spans
(`...`), link targets, versions (1.2.3), dates, steps' numbers and what is part of a name (r1, sm_120) are none.
"""

import re

UNITS = (
    *("ns", "us", "µs", "ms", "s", "min", "h", "seconds?", "minutes?", "hours?", "days?"),
    *("bytes?", "B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "[kMGT]?bit"),
    *("tokens?", "tok", "requests?", "req", "[kMGTP]?FLOPS?", "[kM]?W", "k?J", "[kMG]?Hz", "percent", "times", "fold"),
)

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_RANGE = r"(?:\s?(?:-|\u2013|±|/|to|of|and|or)\s?)"
_TESTED = r"(?:tests?|pass(?:es|ed)?|fail(?:s|ed|ures?)?)"
_FIGURE = re.compile(
    rf"(?<![\w.,:/#@=])(?<!\w[+-])(?P<one>{_NUMBER})(?:{_RANGE}(?P<other>{_NUMBER}))?"
    rf"(?:\s?(?:%|\u00d7|x(?!\w|\s?\d))|[\s-]?(?:{'|'.join(UNITS)})(?![\w-])|(?:\s[a-z-]+){{0,3}}\s{_TESTED}\b)"
)
_STEPS = re.compile(r"\b[Ss]teps? \d+(?:(?:,|-| and| to) ?\d+)*")
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
_COMMA = re.compile(r"(?<=\d),(?=\d)")


def figures(text: str) -> list[str]:
    """The numbers of all figures in a line of Markdown, as written, in their order."""
    prose = _LINK.sub(lambda found: found[1], _CODE.sub("``", text))
    prose = _STEPS.sub("step", prose.replace("**", "").replace("__", ""))
    found = []
    for match in _FIGURE.finditer(prose):
        found += [number.rstrip(",") for number in (match["one"], match["other"]) if number]
    return found


def links(text: str) -> list[str]:
    """The targets of all links in a line of Markdown."""
    return [found[2] for found in _LINK.finditer(_CODE.sub("``", text))]


def occurs(number: str, text: str) -> bool:
    """Whether `text` has the very number: "1.6" is in "took 1.6 s", not in "11.6" or "1.62"; commas do not count."""
    wanted = re.escape(_COMMA.sub("", number))
    return re.search(rf"(?<![\d.]){wanted}(?!\d|\.\d)", _COMMA.sub("", text)) is not None
