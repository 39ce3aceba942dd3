"""How vLLM 0.33.0 lays a KV cache out in blocks, and what fits into some memory, in plain arithmetic.

All groups of layers take blocks of one size from one pool (vllm/v1/core/kv_cache_planning.py:574-640, 914-1041). The
compressed caches and index keys of all sources share a block for each 128 tokens. The sliding windows, and the rings of
compressors, are split into as many groups as it takes for each to fit into that block. T is as in geometry.py.
"""

from dataclasses import dataclass

from serving.plan.geometry import Geometry, Record


@dataclass(frozen=True)
class Demand:
    """What requests may ask for, by the settings of a server.

    Attributes:
        context: tokens of the longest request.
        batch: tokens of one step.
        drafted: tokens that are drafted ahead; 0 for no drafter.
        batches: steps that are under way at once: with asynchronous scheduling two (vllm/config/vllm.py:588-599).
    """

    context: int
    batch: int
    drafted: int
    batches: int = 2


@dataclass(frozen=True)
class Group:
    """Layers that take blocks together: what they are, how many, their bytes of a block, and blocks of a request."""

    what: str
    layers: int
    bytes: int
    blocks: int


@dataclass(frozen=True)
class Capacity:
    """What fits: blocks, requests of the longest context at once, and tokens, which vLLM counts in those."""

    blocks: int
    concurrency: float
    tokens: int


@dataclass(frozen=True)
class Layout:
    """A KV cache: its groups, and the bytes of a block."""

    demand: Demand
    groups: tuple[Group, ...]
    block_bytes: int

    @property
    def blocks(self) -> int:
        """Blocks of a request of the longest context."""
        return sum(group.blocks for group in self.groups)

    @property
    def least(self) -> int:
        """Blocks that vLLM does not start with fewer of: a request's, and one that its pool keeps back.

        vllm/v1/core/kv_cache_planning.py:1529-1556.
        """
        return self.blocks + 1

    def capacity(self, available: float) -> Capacity:
        """What fits into so many bytes (vllm/v1/core/kv_cache_utils.py:1061-1128)."""
        blocks = max(0, int(available)) // self.block_bytes
        concurrency = blocks / self.blocks
        return Capacity(blocks, concurrency, int(concurrency * self.demand.context))


def layout(geometry: Geometry, record: Record, index_key: str, demand: Demand) -> Layout:
    """The KV cache of a model with records and index keys of these formats."""
    key = geometry.index_keys[index_key]
    states = [geometry.block // ratio for ratio in geometry.sources]
    pages = [_page(count, size, record) for count in states for size in (record.compressed, key)]
    windows = geometry.layers + (geometry.draft_layers if demand.drafted else 0)
    window_page = _page(geometry.window_page, record.window, record)
    rings = sum(ratio > 1 for ratio in geometry.sources)
    ring_page = _ring_rows(demand.drafted) * geometry.state_bytes
    block = max(sum(pages), window_page, ring_page)
    groups = [Group("compressed caches and index keys", len(pages), sum(pages), _ceil(demand.context, geometry.block))]
    groups += _split("sliding windows", windows, window_page, block, _window_blocks(geometry, demand))
    groups += _split("rings of the compressors", rings, ring_page, block, 1)
    largest = max(group.bytes for group in groups)
    return Layout(demand, tuple(groups), largest)


def longest(geometry: Geometry, record: Record, index_key: str, demand: Demand, available: float, most: int) -> int:
    """The longest context, up to `most`, of which one request fits into so many bytes; 0 where none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        found = layout(geometry, record, index_key, Demand(middle, demand.batch, demand.drafted, demand.batches))
        if found.least * found.block_bytes <= available:
            low = middle
        else:
            high = middle - 1
    return low


def _page(states: int, size: int, record: Record) -> int:
    return _ceil(states * size, record.alignment) * record.alignment


def _ring_rows(drafted: int) -> int:
    """Drafts, the token after them and the row before, as a power of two (T/compressor.py:221-223)."""
    return max(8, 1 << (drafted + 1).bit_length())


def _window_blocks(geometry: Geometry, demand: Demand) -> int:
    """A window and what is under way, which may begin within a block (vllm/v1/kv_cache_interface.py:921-944)."""
    tokens = min(geometry.window - 1 + demand.batches * demand.batch, demand.context)
    return _ceil(tokens, geometry.window_page) + 1


def _split(what: str, layers: int, page: int, block: int, blocks: int) -> list[Group]:
    """Layers with one page each, in as few groups as fit into a block."""
    if not layers:
        return []
    count = _ceil(layers, max(block // page, 1))
    sizes = [len(range(number, layers, count)) for number in range(count)]
    return [Group(what, size, size * page, blocks) for size in sizes]


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
