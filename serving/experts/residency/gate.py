"""The confidence gate: a step whose next token is in doubt runs again with more of its experts in high precision."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from .slots import Cells


@dataclass(frozen=True)
class GateRules:
    """When a step is in doubt, and what is done about it.

    Attributes:
        tau: in doubt where the likeliest token's probability is at most this; None: not asked.
        margin: in doubt where its logit is at most this many nats above the next one's; None: not asked.
        promotions: experts promoted for one replay.
        replays: replays of a step.
    """

    tau: float | None = 0.60
    margin: float | None = 1.5
    promotions: int = 64
    replays: int = 3

    def __post_init__(self) -> None:
        if self.tau is not None and not 0 <= self.tau <= 1:
            raise ValueError(f"tau {self.tau}: expected a probability, 0 to 1")
        if self.margin is not None and not 0 <= self.margin < float("inf"):
            raise ValueError(f"margin {self.margin}: expected 0 nats or more")
        if self.promotions < 1 or self.replays < 0:
            raise ValueError(f"{self.promotions} promotions, {self.replays} replays: expected at least 1 and 0")


@dataclass(frozen=True)
class Confidence:
    """The least over a step's rows.

    Attributes:
        probability: of the likeliest token, exp(top - logsumexp).
        margin: its logit less the next one's, in nats.
        undefined: rows whose logits have a NaN or +inf, or are all -inf; both figures are 0 then.
    """

    probability: float
    margin: float
    undefined: int


def confidence(logits: npt.NDArray[np.float32]) -> Confidence:
    """Of float logits [rows, vocabulary], at least 1 x 2, reckoned in float64. Raises ValueError on other shapes."""
    if logits.ndim != 2 or logits.shape[0] < 1 or logits.shape[1] < 2:
        raise ValueError(f"logits {logits.shape}: expected [rows, vocabulary], at least 1 x 2")
    wide = logits.astype(np.float64)
    top = wide.max(axis=1)
    defined = np.isfinite(top)
    if not defined.all():
        return Confidence(0.0, 0.0, int((~defined).sum()))
    two = np.partition(wide, -2, axis=1)[:, -2:]
    probability = 1 / np.exp(wide - top[:, None]).sum(axis=1)
    return Confidence(float(probability.min()), float((two[:, 1] - two[:, 0]).min()), 0)


@dataclass(frozen=True)
class Gate:
    """State of one step: how often it ran again, and how many experts were promoted for that."""

    replays: int = 0
    promoted: int = 0


@dataclass(frozen=True)
class Promote:
    """Promote `cells`, as many as find a place, and say how many with `placed`."""

    cells: Cells


@dataclass(frozen=True)
class Again:
    """Run the step again."""


@dataclass(frozen=True)
class Accept:
    """Take the step's result."""

    why: Literal["confident", "replays used up", "nothing to promote", "no room"]


def judge(state: Gate, rules: GateRules, found: Confidence, plain: Cells) -> tuple[Gate, Promote | Accept]:
    """The step has run with confidence `found`; `plain` are its cells without a high-precision slot, hottest first."""
    low = rules.tau is not None and found.probability <= rules.tau
    low = low or (rules.margin is not None and found.margin <= rules.margin)
    if not low:
        return state, Accept("confident")
    if state.replays >= rules.replays:
        return state, Accept("replays used up")
    if plain.size == 0:
        return state, Accept("nothing to promote")
    return state, Promote(plain[: rules.promotions])


def placed(state: Gate, rules: GateRules, count: int) -> tuple[Gate, Again | Accept]:
    """`count` of the cells of the last Promote have a slot now.

    Raises ValueError below 0 and beyond what may be promoted for one replay, or where the replays are used up.
    """
    if not 0 <= count <= rules.promotions or state.replays >= rules.replays:
        raise ValueError(
            f"{count} promoted for replay {state.replays + 1}: expected up to {rules.promotions} for {rules.replays}"
        )
    if count == 0:
        return state, Accept("no room")
    return replace(state, replays=state.replays + 1, promoted=state.promoted + count), Again()
