"""What others published of a line, and how a measured figure compares."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from images.manifest import model
from serving.check.result import Figure

SCHEMA = "moet.published.v1"
# Two hosts of the same cards differ by some percent; below this, something is usually amiss.
LOW = 0.9


@dataclass(frozen=True)
class Published:
    """A published figure.

    Attributes:
        checks: names of the checks that measure it.
        figure: its name there.
        unit: of both values.
        served: as whoever published it served it.
        stock: as vLLM's own image did; None where that was not published.
        as_said: how it was published, where `served` follows from that; "" where it is the figure itself.
    """

    checks: tuple[str, ...]
    figure: str
    unit: str
    served: int
    stock: int | None = None
    as_said: str = ""


@dataclass(frozen=True)
class Line:
    """What is known of a line from outside.

    Attributes:
        model: the name that its profile gives the model.
        cards: number of cards that the figures are of.
        card: part of the name that nvidia-smi has for them.
        served: whose image `served` figures are of.
        stock: whose image `stock` figures are of.
        source: where they were published, and what was not said there.
        efforts: every reasoning_effort that a server of the line takes.
        figures: the figures.
    """

    model: str
    cards: int
    card: str
    served: str
    stock: str
    source: str
    efforts: tuple[str, ...]
    figures: tuple[Published, ...]

    def of(self, check: str) -> list[Published]:
        """The figures that a check measures."""
        return [one for one in self.figures if check in one.checks]


def load() -> Mapping[str, Line]:
    """Every line that something is known of."""
    text = resources.files("serving.check").joinpath("figures.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    if (schema := data.pop("schema")) != SCHEMA:
        raise ValueError(f"figures.toml: schema: expected {SCHEMA}, found {schema}")
    return {name: model.decode(Line, table, name) for name, table in data.items()}


def low(published: Published, measured: Figure) -> bool:
    """Whether a measured figure is clearly below the published one."""
    return measured.value < LOW * published.served


def words(published: Published, measured: Figure, line: Line) -> str:
    """The comparison in one line."""
    share = 100 * measured.value / published.served
    said = f", {published.as_said}" if published.as_said else ""
    stock = f"; {published.stock:,} of {line.stock}" if published.stock else ""
    served = f"{published.served:,} {published.unit} of {line.served} on {line.cards}x {line.card}{said}"
    return f"here {share:.0f} % of what others published: {served}{stock}"
