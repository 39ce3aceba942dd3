"""The rules by which experts are promoted and evicted: numbers, and where they come from."""

from dataclasses import dataclass
from fractions import Fraction

# Keys of victims hold a heat in 36 bits (cache.py).
HEAT_LIMIT = (1 << 36) - 1


@dataclass(frozen=True)
class Rules:
    """What a pass may do.

    Heat is an integer, so that every machine decides alike: `unit` for each routed row, halved by each tick.

    Attributes:
        promotions: copies that a pass may begin.
        cold_ticks: ticks without being seen after which an owner is cold, and may be evicted for anybody hotter;
            None: being cold is no reason.
        margin: how many times hotter than the coldest owner, seen or not, a candidate must be to take its slot;
            None: an owner that is not cold stays.
        stay_ticks: ticks that an owner stays before `margin` can take its slot.
        swaps: evictions of one quota in a pass; None: as many as `promotions` allows.
        recent_steps: steps after which the recent heat halves, by which, beside heat, fetches choose who goes
            (heat.Heat.warmth); None: by heat alone.
        unit: heat of one routed row.
        cap: the most heat that a cell can have.
    """

    promotions: int = 8
    cold_ticks: int | None = 2
    margin: Fraction | None = None
    stay_ticks: int = 2
    swaps: int | None = None
    recent_steps: int | None = None
    unit: int = 1024
    cap: int = HEAT_LIMIT

    def __post_init__(self) -> None:
        if self.promotions < 0 or (self.swaps is not None and self.swaps < 0):
            raise ValueError(f"{self.promotions} promotions, {self.swaps} swaps: expected 0 or more")
        if (self.cold_ticks is not None and not 1 <= self.cold_ticks < 128) or not 0 <= self.stay_ticks < 128:
            raise ValueError(f"cold after {self.cold_ticks}, stay {self.stay_ticks} ticks: expected 1 and 0 up to 127")
        if self.margin is not None and self.margin < 1:
            raise ValueError(f"margin {self.margin}: expected at least 1, or a hotter owner would make way")
        if self.recent_steps is not None and self.recent_steps < 1:
            raise ValueError(f"recent heat of {self.recent_steps} steps: expected at least 1")
        if not 1 <= self.unit <= self.cap <= HEAT_LIMIT:
            raise ValueError(f"unit {self.unit}, cap {self.cap}: expected 1 <= unit <= cap <= {HEAT_LIMIT}")

    @property
    def least_stay(self) -> int:
        """Ticks that pass at least between two promotions into one slot, whatever is asked for: no flapping."""
        bounds = [self.cold_ticks] if self.cold_ticks is not None else []
        return min(bounds + ([self.stay_ticks] if self.margin is not None else []), default=127)


# The delta manager of 2-bit experts (vLLM-Moet's 0.24.0 line): at most 8 a pass, cold owners only.
W2 = Rules()
# The expert balance's dynamic mode (hotsplit): every 2000 steps, at most 2 swaps a layer, 1.25 times hotter.
DYNAMIC = Rules(promotions=1 << 16, cold_ticks=None, margin=Fraction(5, 4), stay_ticks=1, swaps=2)
# Ours: the first, the second's margin where no owner is cold, and recent heat for fetches, of which both say nothing.
OURS = Rules(margin=Fraction(5, 4), swaps=2, recent_steps=100)

PRESETS = {"ours": OURS, "w2": W2, "dynamic": DYNAMIC}
