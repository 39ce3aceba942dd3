"""What others measured of this model on this kind of card: kacper-daftcode/vLLM-Moet, README.md and docs of 2026-09.

Their bases are vLLM of 2026-09-09 and its main line of 2026-09-22, on RTX PRO 6000 cards of 96 GB.
"""

from dataclasses import dataclass

from serving.plan.blocks import Demand
from serving.plan.geometry import FP8, Record

_512K, _1M = 524_288, 1_048_576
# Their own step: FP4 records in the compressed caches alone, in pages of the fp8 record; and FlashInfer's pair of
# records on the main line of vLLM, in blocks that need not hold whole rows of both.
_THEIR_FP4 = Record("nvfp4 of theirs", 584, 288, 576)
_MAIN_FP4 = Record("nvfp4_ds_mla of theirs", 528, 288, 512)


@dataclass(frozen=True)
class Case:
    """A server's log: what it was, the memory for the KV cache in GiB with two decimals, and the tokens it stated."""

    what: str
    record: Record
    index_key: str
    demand: Demand
    available_gib: float
    tokens: int


CASES = (
    Case("TP4, 512K, fp8 records, fp8 index keys", FP8, "fp8", Demand(_512K, 4096, 5), 3.14, 1_490_870),
    Case("TP4, 512K, fp8 records, mxfp4 index keys", FP8, "mxfp4", Demand(_512K, 4096, 5), 4.39, 2_288_673),
    Case("TP4, 512K, FP4 records, mxfp4 index keys", _THEIR_FP4, "mxfp4", Demand(_512K, 4096, 5), 3.87, 3_057_484),
    Case("the same, before their scratch memory", _THEIR_FP4, "mxfp4", Demand(_512K, 4096, 5), 4.37, 3_453_349),
    Case("the same on vLLM's main line", _MAIN_FP4, "mxfp4", Demand(_512K, 4096, 5), 4.35, 3_454_536),
    # The only step of a usual size that gives the figure; it is not stated.
    Case("TP8, 1M, fp8 records, fp8 index keys", FP8, "fp8", Demand(_1M, 16_384, 5), 18.9, 7_509_385),
)


@dataclass(frozen=True)
class Memory:
    """What a server takes of each GPU beside weights and KV cache, in GiB: the usual, the least and the most.

    Attributes:
        card: all of a card, as CUDA counts it.
        outside: what is no tensor of torch's: CUDA's context, NCCL, and libraries; by format of the index keys.
        outside_range: of all of their starts.
        activation: the peak of one step, of `activation_tokens` tokens.
        activation_tokens: of that step.
        graphs: CUDA graphs up to 64 tokens.
        graphs_range: of all of their starts.
    """

    card: float
    outside: dict[str, float]
    outside_range: tuple[float, float]
    activation: float
    activation_tokens: int
    graphs: float
    graphs_range: tuple[float, float]


# At 0.94, consumed + activation + KV cache is 89.27 GiB in both servers that state them: 94.97 GiB a card. Consumed was
# 84.32 to 84.92 GiB with fp8 index keys and 83.07 with mxfp4, of which 81.1 GiB weights.
MEMORY = Memory(
    card=94.97,
    outside={"fp8": 3.22, "mxfp4": 1.97},
    outside_range=(1.97, 3.82),
    activation=1.81,
    activation_tokens=4096,
    graphs=0.42,
    graphs_range=(0.42, 0.74),
)
