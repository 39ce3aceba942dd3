"""What one check found."""

from dataclasses import dataclass
from typing import Literal

from images.inspect.text import plain

State = Literal["ok", "hint", "finding", "skipped"]


@dataclass(frozen=True)
class Result:
    """One line of a preflight. Every text is fit for a terminal, whatever file or program it came from.

    Attributes:
        check: short name of what was looked at.
        state: a finding keeps the server from starting or from working; a hint may; skipped was not looked at.
        what: what was found; of `skipped`, the reason.
        why: why it matters; of findings and hints.
        mend: the command or the act that mends it; of findings and hints.
    """

    check: str
    state: State
    what: str
    why: str = ""
    mend: str = ""


def ok(check: str, what: str) -> Result:
    """Nothing is wrong."""
    return Result(check, "ok", plain(what))


def skipped(check: str, reason: str) -> Result:
    """It was not looked at."""
    return Result(check, "skipped", plain(reason))


def finding(check: str, what: str, why: str, mend: str) -> Result:
    """Something is wrong."""
    return Result(check, "finding", plain(what), plain(why), plain(mend))


def hint(check: str, what: str, why: str, mend: str) -> Result:
    """Something may be wrong; it is no failure by itself."""
    return Result(check, "hint", plain(what), plain(why), plain(mend))


def gib(size: float) -> str:
    """A number of bytes in GiB."""
    return f"{size / 2**30:,.1f} GiB"


def some(names: list[str], most: int = 5) -> str:
    """Names with commas: the first few, and how many more there are."""
    more = f", and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
