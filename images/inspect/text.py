"""Text that comes from an image, made fit for a terminal."""

import unicodedata

# Controls, formats (bidirectional overrides among them), surrogates, private use, and separators of lines.
_UNFIT = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def plain(text: str, limit: int = 2000) -> str:
    """`text` on one line: what a terminal could obey is escaped as in Python, and the rest after `limit` left out."""
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text) - limit} more characters)"
    return "".join(_escaped(char) if unicodedata.category(char) in _UNFIT else char for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def one_line(text: str, limit: int = 2000) -> str:
    """`text` with every run of blanks and line ends as one space, and fit for a terminal."""
    return plain(" ".join(text.split()), limit)


def brief(text: str, limit: int) -> str:
    """The beginning of `text`, for a table's cell: one line of at most `limit` characters."""
    line = " ".join(text[: 4 * limit].split())
    return plain(line if len(line) <= limit else line[: limit - 3] + "...", 10 * limit)


def megabytes(size: int | None) -> str:
    """A number of bytes for people; "?" where nobody knows it."""
    if size is None:
        return "?"
    if size < 1_000_000:
        return f"{size / 1000:,.1f} kB"
    return f"{size / 1_000_000:,.1f} MB"
