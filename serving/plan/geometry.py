"""What of a model decides the bytes of its KV cache and of its weights. Data, each with where it is from.

T is vllm/models/deepseek_v41 of vLLM 0.33.0. The steps' test test_kv_budget.py holds what follows from this against
vLLM's own classes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """A format of KV records.

    Attributes:
        name: --kv-cache-dtype.
        window: bytes of a token's record in the sliding window of a layer.
        compressed: bytes of a state's record in a compressed cache.
        alignment: bytes that every page is rounded up to.
    """

    name: str
    window: int
    compressed: int
    alignment: int


@dataclass(frozen=True)
class Experts:
    """Routed experts: how many, and the sizes of each; `bits` of a weight with its share of a scale."""

    layers: int
    count: int
    hidden: int
    intermediate: int
    bits: float
    padding: int

    def bytes(self, tp: int) -> float:
        """What one of `tp` GPUs holds of them: each GPU's part of a dimension is padded."""
        part = -(-self.intermediate // tp)
        padded = -(-part // self.padding) * self.padding
        return self.layers * self.count * 3 * self.hidden * padded * self.bits / 8


@dataclass(frozen=True)
class Geometry:
    """A model.

    Attributes:
        layers: with a sliding window each.
        draft_layers: of the drafter, likewise.
        sources: of each layer that owns a compressed cache and index keys, how many tokens one state stands for.
        window: of a layer, in tokens.
        window_page: tokens of a page of it.
        block: tokens of a block of the compressed caches.
        state_bytes: of one row of a compressor's ring, one for each token that waits to be compressed.
        index_keys: format to bytes of an index key.
        records: formats of records that can be planned for.
        experts: of the layers and of the drafter.
        shared_gib: of all other weights, what is spread over the GPUs, in GiB.
        replicated_gib: what each GPU has for itself.
    """

    layers: int
    draft_layers: int
    sources: tuple[int, ...]
    window: int
    window_page: int
    block: int
    state_bytes: int
    index_keys: dict[str, int]
    records: tuple[Record, ...]
    experts: tuple[Experts, Experts]
    shared_gib: float
    replicated_gib: float


# T/attention.py:512-529 and v1/attention/backends/mla/sparse_swa.py:88-90: 448 e4m3, 64 bf16 and 8 bytes of scales;
# pages are multiples of the decode kernel's stride.
FP8 = Record("fp8_ds_mla", 584, 584, 576)
# T/attention.py:513-519, and step 10: on sm_120 blocks are not rounded up to whole rows of both, as on family 100.
FP4 = Record("nvfp4_ds_mla", 528, 288, 512)

DSV41 = Geometry(
    layers=40,
    draft_layers=3,
    # Three sources of ratio 2 (layers 2 to 19) and one of ratio 1 (20 to 39), by the blocks that serving it has shown.
    sources=(2, 2, 2, 1),
    window=128,
    # T/attention.py:573.
    window_page=32,
    # v1/attention/backends/mla/indexer.py:365-368: DeepseekV41IndexerBackend off family 90.
    block=128,
    # T/compressor.py:306-310: value and score of 512 dimensions in fp32.
    state_bytes=2 * 512 * 4,
    # T/attention.py:101-110.
    index_keys={"fp8": 132, "mxfp4": 68},
    records=(FP8, FP4),
    # T/nvidia/specialized_decode/moe/routed_expert_gemm.py:76-84; MXFP4 with a scale byte for 32.
    experts=(
        Experts(layers=40, count=384, hidden=5120, intermediate=2304, bits=4.25, padding=128),
        Experts(layers=3, count=128, hidden=5120, intermediate=2304, bits=4.25, padding=128),
    ),
    # Of two published figures, 81.1 GiB a GPU at TP4 and 50.2 at TP8, what the experts leave.
    shared_gib=1.6,
    replicated_gib=4.1,
)

LINES = {"dsv41": DSV41}
