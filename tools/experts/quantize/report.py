"""What two bits cost a model, from the counts of its tensors: bias and error of the codebook, and if it may be used.

The canonical levels -4, -1, 1, 4 are held against the best symmetric set and the best set of any four levels of each
tensor. A bias of one sign adds up over layers, so it counts more than the error.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tools.experts.quantize import codebooks
from tools.experts.quantize.facts import Counts

MATRICES = ("w1", "w3", "w2")


@dataclass(frozen=True)
class Condition:
    """One condition of the gate: `value` must be below `limit`, or above it where `above`."""

    name: str
    value: float
    limit: float
    above: bool = False

    @property
    def holds(self) -> bool:
        """Whether it does."""
        return self.value > self.limit if self.above else self.value < self.limit


@dataclass(frozen=True)
class Layer:
    """Means over a layer's tensors: as in Report."""

    layer: int
    bias: float
    free_bias: float
    rms: float
    free_rms: float
    canonical: float


@dataclass(frozen=True)
class Report:
    """A whole run.

    Attributes:
        tensors: how many matrices.
        bias: mean over tensors of |mean signed error| of the canonical levels, in units of the blocks' scales.
        free_bias: the same of the best four levels of any kind.
        rms: mean over tensors of the canonical levels' error, relative to the tensor's root mean square.
        free_rms: the same of the best four levels.
        canonical: share of tensors of which no symmetric set is better than the canonical one.
        winners: levels of the best symmetric set to the number of its tensors.
        weights: how many.
        zeros: exact zeros.
        alternated: tensors whose zeros took their sign from the column.
        saturated: weights above 6 units.
        zero_blocks: blocks of 32 that are all zero.
        clamped: blocks whose exponent was out of range.
        layers: means of each layer.
    """

    tensors: int
    bias: float
    free_bias: float
    rms: float
    free_rms: float
    canonical: float
    winners: dict[str, int]
    weights: int
    zeros: int
    alternated: int
    saturated: int
    zero_blocks: int
    clamped: int
    layers: tuple[Layer, ...]

    def gate(self) -> tuple[Condition, ...]:
        """The conditions on which two bits may be used."""
        share = self.bias / self.free_bias if self.free_bias else float(self.bias > 0)
        ratio = self.rms / self.free_rms if self.free_rms else 1.0
        return (
            Condition("mean |bias|", self.bias, codebooks.MOST_BIAS),
            Condition("mean |bias| over the best four levels'", share, codebooks.MOST_BIAS_SHARE),
            Condition(
                "tensors of which -4 -1 1 4 is the best symmetric set", self.canonical, codebooks.LEAST_CANONICAL, True
            ),
            Condition("relative error over the best four levels'", ratio, codebooks.MOST_RMS_RATIO),
        )

    @property
    def passes(self) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds for condition in self.gate())

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        gate = [asdict(condition) | {"holds": condition.holds} for condition in self.gate()]
        whole = asdict(self)
        return whole | {"layers": list(whole["layers"]), "gate": gate, "passes": self.passes}


def summarize(counts: Mapping[tuple[int, int], list[Counts]]) -> Report:
    """The report over (layer, expert) to the counts of w1, w3 and w2; the same whatever the order.

    Raises ValueError when there are none.
    """
    if not counts:
        raise ValueError("no counts to report on")
    found: dict[int, list[codebooks.Search]] = defaultdict(list)
    for (layer, _), three in sorted(counts.items()):
        found[layer].extend(codebooks.search(np.array(one.histogram, dtype=np.int64)) for one in three)
    every = [one for layer in found.values() for one in layer]
    winners = Counter(" ".join(f"{level:g}" for level in one.symmetric.levels) for one in every)
    flat = [one for _, three in sorted(counts.items()) for one in three]
    return Report(
        tensors=len(every),
        **_means(every),
        winners=dict(sorted(winners.items(), key=lambda item: (-item[1], item[0]))),
        weights=sum(sum(one.histogram) for one in flat),
        zeros=sum(one.positive_zeros + one.negative_zeros for one in flat),
        alternated=sum(one.alternated for one in flat),
        saturated=sum(one.saturated for one in flat),
        zero_blocks=sum(one.zero_blocks for one in flat),
        clamped=sum(one.clamped for one in flat),
        layers=tuple(Layer(layer, **_means(ones)) for layer, ones in sorted(found.items())),
    )


def tensors(counts: Mapping[tuple[int, int], list[Counts]]) -> list[dict[str, Any]]:
    """Every tensor by itself, as JSON has it."""
    rows = []
    for (layer, expert), three in sorted(counts.items()):
        for matrix, one in zip(MATRICES, three, strict=True):
            searched = codebooks.search(np.array(one.histogram, dtype=np.int64))
            rows.append({"layer": layer, "expert": expert, "matrix": matrix} | asdict(one) | asdict(searched))
    return rows


def _means(ones: list[codebooks.Search]) -> dict[str, float]:
    def mean(values: list[float]) -> float:
        return float(np.mean(np.array(values)))

    return {
        "bias": mean([abs(one.canonical.bias) for one in ones]),
        "free_bias": mean([abs(one.free.bias) for one in ones]),
        "rms": mean([one.canonical.rms for one in ones]),
        "free_rms": mean([one.free.rms for one in ones]),
        "canonical": mean([float(one.canonical.rms <= one.symmetric.rms) for one in ones]),
    }
