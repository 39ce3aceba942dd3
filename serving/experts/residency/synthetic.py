"""Routing that looks like a model's: some experts popular, layers that agree, topics that drift. Seeded."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tools.cli.errors import UserError

from .trace import RoutingTrace

_TOPIC = 8


@dataclass(frozen=True)
class Synthetic:
    """What to make.

    A row's experts are the top_k of `popularity + topic * strength + noise` with Gumbel noise: drawn without putting
    back, in proportion to exp(popularity + topic * strength).

    Attributes:
        steps: steps, of `rows` rows each.
        layers: MoE layers.
        experts: routed experts of a layer.
        top_k: experts that a row is routed to.
        rows: rows of a step, each with a topic of its own.
        zipf: popularity of the r-th expert of a layer is r to the power of minus this.
        strength: how far a topic bends that, in nats (one standard deviation).
        agreement: correlation of neighbouring layers' ranks and of what a topic likes in them, 0 to 1.
        drift: steps after which a topic is 1/e of what it was.
        seed: of all of it.
    """

    steps: int = 2000
    layers: int = 8
    experts: int = 64
    top_k: int = 6
    rows: int = 1
    zipf: float = 0.8
    strength: float = 1.0
    agreement: float = 0.5
    drift: float = 500.0
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = {"steps": self.steps, "layers": self.layers, "experts": self.experts, "rows": self.rows}
        for name, size in sizes.items():
            if size < 1:
                raise UserError(f"{name} {size}: expected at least 1")
        if not 1 <= self.top_k <= self.experts or self.experts > 0xFFFF:
            raise UserError(
                f"top {self.top_k} of {self.experts} experts: expected 1 to {self.experts}, of at most 65535"
            )
        if not (0 <= self.zipf < 10 and 0 <= self.strength < 100 and 0 <= self.agreement <= 1 and self.drift >= 1):
            raise UserError(
                f"zipf {self.zipf}, strength {self.strength}, agreement {self.agreement}, drift {self.drift}: "
                "expected 0 to 10, 0 to 100, 0 to 1, and at least 1 step"
            )


def make(spec: Synthetic, progress: Callable[[int], None] = lambda _steps: None) -> RoutingTrace:
    """Makes the trace; `progress` is told of steps as they are made.

    The same spec makes the same trace with the same numpy on the same kind of CPU; elsewhere a logarithm or a sum may
    be rounded otherwise, and a row be routed otherwise: share the file, not the seed.
    """
    rng = np.random.default_rng(spec.seed)
    popularity, likes = _layers(spec, rng)
    routed = np.empty((spec.steps, spec.rows, spec.layers, spec.top_k), np.uint16)
    topic = rng.standard_normal((spec.rows, _TOPIC))
    keep = np.exp(-1 / spec.drift)
    for step in range(spec.steps):
        topic = keep * topic + np.sqrt(1 - keep * keep) * rng.standard_normal(topic.shape)
        bent = (topic @ likes.reshape(_TOPIC, -1)).reshape(spec.rows, spec.layers, spec.experts)
        noise = -np.log(np.maximum(rng.standard_exponential(bent.shape, dtype=np.float32), np.float32(1e-30)))
        score = popularity + spec.strength * bent.astype(np.float32) + noise
        routed[step] = np.argpartition(score, spec.experts - spec.top_k, axis=2)[:, :, spec.experts - spec.top_k :]
        progress(1)
    step_of_row = np.repeat(np.arange(spec.steps, dtype=np.int64), spec.rows)
    flat = np.sort(routed.reshape(-1, spec.layers, spec.top_k), axis=2)
    return RoutingTrace(flat, step_of_row, spec.experts, tuple(range(spec.layers)), "synthetic", f"synthetic: {spec}")


def _layers(spec: Synthetic, rng: np.random.Generator) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Log popularity [layers, experts], and what topics like [_TOPIC, layers, experts]; its sum has variance 1."""
    fresh = np.sqrt(1 - spec.agreement**2)
    popularity = np.empty((spec.layers, spec.experts), np.float32)
    likes = np.empty((_TOPIC, spec.layers, spec.experts))
    rank = rng.standard_normal(spec.experts)
    like = rng.standard_normal((_TOPIC, spec.experts))
    for layer in range(spec.layers):
        if layer:
            rank = spec.agreement * rank + fresh * rng.standard_normal(spec.experts)
            like = spec.agreement * like + fresh * rng.standard_normal(like.shape)
        popularity[layer, np.argsort(-rank)] = -spec.zipf * np.log(np.arange(1, spec.experts + 1))
        likes[:, layer] = like / np.sqrt(_TOPIC)
    return popularity, likes
