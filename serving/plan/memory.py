"""What each GPU's memory goes to, before what is left is the KV cache's."""

from dataclasses import dataclass

from serving.plan.geometry import Geometry
from serving.plan.published import Memory

GIB = 1 << 30


@dataclass(frozen=True)
class Term:
    """A part of a GPU's memory in GiB: the usual, the least and the most, and how it is known."""

    name: str
    usual: float
    least: float
    most: float
    why: str


@dataclass(frozen=True)
class Budget:
    """A GPU's memory. `asked` is what vLLM takes of `card`, both in GiB; `terms` are what goes of that."""

    card: float
    utilization: float
    terms: tuple[Term, ...]

    @property
    def asked(self) -> float:
        """GiB that vLLM may take."""
        return self.card * self.utilization

    @property
    def available(self) -> tuple[float, float, float]:
        """GiB for the KV cache: the usual, the least and the most; below 0 where the rest does not fit."""
        usual, most, least = (sum(getattr(term, name) for term in self.terms) for name in ("usual", "most", "least"))
        return self.asked - usual, self.asked - most, self.asked - least

    def at(self, utilization: float) -> "Budget":
        """The same at another share."""
        return Budget(self.card, utilization, self.terms)


def budget(
    geometry: Geometry, memory: Memory, index_key: str, tp: int, batch: int, utilization: float, card: float | None
) -> Budget:
    """The memory of one of `tp` GPUs, in steps of `batch` tokens; `card` is its GiB where it is not the usual one's."""
    return Budget(
        card=memory.card if card is None else card,
        utilization=utilization,
        terms=(_weights(geometry, tp), _outside(memory, index_key), _activation(memory, batch), _graphs(memory)),
    )


def measured(card: float, utilization: float, consumed: float, activation: float) -> Budget:
    """The memory of a GPU as a server's log states it, in GiB."""
    terms = (
        Term("weights and what is outside torch", consumed, consumed, consumed, "stated in the log"),
        Term("activations and graphs", activation, activation, activation, "stated in the log"),
    )
    return Budget(card, utilization, terms)


def _weights(geometry: Geometry, tp: int) -> Term:
    experts = sum(one.bytes(tp) for one in geometry.experts) / GIB
    rest = geometry.shared_gib / tp + geometry.replicated_gib
    why = f"{experts:.1f} GiB of experts by their shapes, padded for TP {tp}; {rest:.1f} that published figures leave"
    return Term("weights", experts + rest, experts + rest, experts + rest, why)


def _outside(memory: Memory, index_key: str) -> Term:
    least, most = memory.outside_range
    why = "CUDA, NCCL and libraries, as published for TP 4; it differs from start to start, and nobody knows why"
    return Term("outside torch", memory.outside[index_key], least, most, why)


def _activation(memory: Memory, batch: int) -> Term:
    size = memory.activation * batch / memory.activation_tokens
    why = f"published for steps of {memory.activation_tokens:,} tokens, and taken to grow with them: here {batch:,}"
    return Term("activations", size, size, size, why)


def _graphs(memory: Memory) -> Term:
    least, most = memory.graphs_range
    why = "published for graphs up to 64 tokens; vLLM 0.33.0 sets its estimate aside (v1/worker/gpu_worker.py:754)"
    return Term("CUDA graphs", memory.graphs, least, most, why)
