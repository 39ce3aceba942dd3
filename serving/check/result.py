"""What one check found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["pass", "low", "fail", "skipped"]


@dataclass(frozen=True)
class Figure:
    """A measured number, such as Figure("decode steps", 129.3, "steps/s")."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Result:
    """One line of `moet serve check`.

    Attributes:
        check: short name of what was tried, such as "decode prose x8".
        state: `low` is a figure clearly below the published one, and no failure; `skipped` was not tried.
        what: what was found, of `skipped` the reason; fit for a terminal.
        advice: what is usual where it is low or fails, a line each.
        figures: what was measured.
        beside: how figures compare with published ones, a line each.
    """

    check: str
    state: State
    what: str
    advice: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """A check to be run: its name, and what runs it, which raises ClientError."""

    name: str
    run: Callable[[], Result]
