"""What two bits cost a model, from the counts of its tensors: bias and error of the codebook, and if it may be used.

The canonical levels -4, -1, 1, 4 are held against the best symmetric set and the best set of any four levels of each
tensor. A bias of one sign adds up over layers, so it counts more than the error.
"""

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tools.experts.quantize import codebooks
from tools.experts.quantize.counted import ByExpert
from tools.experts.quantize.facts import Counts

MATRICES = ("w1", "w3", "w2")

_MEANS = ("bias", "free_bias", "rms", "free_rms", "canonical")


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


def summarize(counts: ByExpert) -> Report:
    """The report over (layer, expert) to the counts of w1, w3 and w2; the same whatever the order.

    Raises ValueError when there are none.
    """
    if not counts:
        raise ValueError("no counts to report on")
    # A model has tens of thousands of tensors: their numbers are kept, not what they came from.
    found: dict[int, array[float]] = defaultdict(lambda: array("d"))
    winners: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for (layer, _), one in _each(counts):
        searched = _searched(one)
        found[layer].extend(_numbers(searched))
        winners[" ".join(f"{level:g}" for level in searched.symmetric.levels)] += 1
        sums.update(
            tensors=1,
            weights=sum(one.histogram),
            zeros=one.positive_zeros + one.negative_zeros,
            alternated=one.alternated,
            saturated=one.saturated,
            zero_blocks=one.zero_blocks,
            clamped=one.clamped,
        )
    every = array("d", [number for numbers in found.values() for number in numbers])
    return Report(
        **_means(every),
        tensors=sums["tensors"],
        weights=sums["weights"],
        zeros=sums["zeros"],
        alternated=sums["alternated"],
        saturated=sums["saturated"],
        zero_blocks=sums["zero_blocks"],
        clamped=sums["clamped"],
        winners=dict(sorted(winners.items(), key=lambda item: (-item[1], item[0]))),
        layers=tuple(Layer(layer, **_means(numbers)) for layer, numbers in found.items()),
    )


def tensors(counts: ByExpert) -> Iterator[dict[str, Any]]:
    """Every tensor by itself, as JSON has it."""
    for at, ((layer, expert), one) in enumerate(_each(counts)):
        where = {"layer": layer, "expert": expert, "matrix": MATRICES[at % len(MATRICES)]}
        yield where | asdict(one) | asdict(_searched(one))


def file(found: Report, counts: ByExpert) -> bytes:
    """The report with every tensor by itself, a line each, as a JSON document."""
    whole = json.dumps(found.document(), indent=1).removesuffix("\n}")
    rows = ",\n".join(f"  {json.dumps(row)}" for row in tensors(counts))
    return f'{whole},\n "tensors_one_by_one": [\n{rows}\n ]\n}}\n'.encode()


def _each(counts: ByExpert) -> Iterator[tuple[tuple[int, int], Counts]]:
    return ((key, one) for key in sorted(counts) for one in counts[key])


def _searched(one: Counts) -> codebooks.Search:
    return codebooks.search(np.array(one.histogram, dtype=np.int64))


def _numbers(one: codebooks.Search) -> tuple[float, ...]:
    """A tensor's part in each of _MEANS."""
    best = one.canonical.rms <= one.symmetric.rms
    return abs(one.canonical.bias), abs(one.free.bias), one.canonical.rms, one.free.rms, float(best)


def _means(numbers: "array[float]") -> dict[str, float]:
    columns = np.array(numbers).reshape(-1, len(_MEANS)).T
    return {name: float(np.mean(np.ascontiguousarray(column))) for name, column in zip(_MEANS, columns, strict=True)}
