"""What `moet plan kv` reckons, against vLLM's own specs, groups, and count of tokens."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.models.deepseek_v41 import attention
from vllm.models.deepseek_v41.compressor import CompressorStateCache
from vllm.v1.attention.backends.mla.indexer import DeepseekV41IndexerBackend
from vllm.v1.attention.backends.mla.sparse_swa import DeepseekV4SWACache
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

from serving.plan import blocks
from serving.plan.blocks import Demand, Layout
from serving.plan.geometry import DSV41, FP4, FP8, Record

Configure = Callable[..., VllmConfig]

GIB = 1 << 30
DEMANDS = [
    Demand(524_288, 4096, 5),
    Demand(1_048_576, 16_384, 5),
    Demand(100_000, 256, 7),
    Demand(8192, 4096, 0),
    Demand(4000, 8192, 1),
]


@pytest.fixture(params=DEMANDS, ids=str)
def demand(request: pytest.FixtureRequest) -> Demand:
    return request.param


@pytest.fixture
def config(serve_config: Configure, demand: Demand, monkeypatch: pytest.MonkeyPatch) -> VllmConfig:
    """A server's, as far as its KV cache goes by it."""
    found = serve_config(f"--max-num-batched-tokens={demand.batch}")
    found.model_config.max_model_len = demand.context
    found.cache_config.block_size = DSV41.block
    found.cache_config.kv_cache_layout = "BLHNC"
    monkeypatch.setattr(VllmConfig, "num_speculative_tokens", property(lambda self: demand.drafted))
    return found


@pytest.fixture(params=[FP8, FP4], ids=lambda record: record.name)
def record(request: pytest.FixtureRequest, config: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> Record:
    """A format of records; for pages of index keys, FP4 is what vLLM has for family 100."""
    monkeypatch.setattr(attention, "_use_v41_mxfp8_kv_record", lambda *dtype: request.param is FP4)
    config.cache_config.cache_dtype = request.param.name
    return request.param


def specs(config: VllmConfig, record: Record, index_key: str, demand: Demand) -> dict[str, KVCacheSpec]:
    """The specs of all layers, of the modules that the model makes."""
    found: dict[str, KVCacheSpec] = {}
    cache_config = config.cache_config
    with set_current_vllm_config(config):
        for number in range(DSV41.layers + (DSV41.draft_layers if demand.drafted else 0)):
            swa = DeepseekV4SWACache(
                512,
                DSV41.window,
                torch.uint8,
                f"layer{number}.swa",
                cache_config,
                block_size=DSV41.window_page,
                packed_bytes_per_token=record.window,
                packed_page_alignment=record.alignment,
                bounded_replay=True,
            )
            found[swa.prefix] = swa.get_kv_cache_spec(config)
        for number, ratio in enumerate(DSV41.sources):
            source = SimpleNamespace(
                is_kv_source=True,
                kv_cache_dtype=record.name,
                head_dim=512,
                kv_cache_torch_dtype=torch.uint8,
                compress_ratio=ratio,
                kv_page_alignment=record.alignment,
                compressed_bytes_per_token=record.compressed,
            )
            found[f"source{number}"] = attention.DeepseekV4Attention.get_kv_cache_spec(source, config)
            size = attention._indexer_k_cache_head_dim(128, index_key == "mxfp4")
            keys = attention.DeepseekV4IndexerCache(size, torch.uint8, f"source{number}.keys", cache_config, ratio)
            found[keys.prefix] = keys.get_kv_cache_spec(config)
            if ratio > 1:
                ring = CompressorStateCache(2 * 512, torch.float32, f"source{number}.ring")
                found[ring.prefix] = ring.get_kv_cache_spec(config)
    return found


def planned(config: VllmConfig, found: dict[str, KVCacheSpec], available: int) -> KVCacheConfig:
    (one,) = get_kv_cache_configs(config, [found], [available], get_global_kv_cache_groups(config, [found]))
    return one


@pytest.mark.parametrize("index_key", list(DSV41.index_keys))
def test_blocks_and_tokens_are_vllms(config: VllmConfig, record: Record, index_key: str, demand: Demand) -> None:
    ours = blocks.layout(DSV41, record, index_key, demand)
    found = specs(config, record, index_key, demand)
    for gib in (3.14, 18.9):
        theirs = planned(config, found, int(gib * GIB))
        tokens, concurrency = get_kv_cache_capacity(config, theirs)
        fits = ours.capacity(gib * GIB)
        assert (fits.blocks, fits.tokens) == (theirs.num_blocks, tokens)
        assert fits.concurrency == pytest.approx(concurrency)
        assert {tensor.size // theirs.num_blocks for tensor in theirs.kv_cache_tensors} == {ours.block_bytes}
        sizes = [group.kv_cache_spec.page_size_bytes for group in theirs.kv_cache_groups]
        assert sorted(sizes) == sorted(group.bytes for group in ours.groups)


@pytest.mark.parametrize("index_key", list(DSV41.index_keys))
def test_server_starts_with_the_least_blocks_and_not_with_one_less(
    config: VllmConfig, record: Record, index_key: str, demand: Demand
) -> None:
    ours: Layout = blocks.layout(DSV41, record, index_key, demand)
    found = specs(config, record, index_key, demand)
    assert planned(config, found, ours.least * ours.block_bytes).num_blocks == ours.least
    with pytest.raises(ValueError, match="To serve at least one request with the model's max seq len"):
        planned(config, found, (ours.least - 1) * ours.block_bytes)
    # As a tuning pass has it: however little memory there is.
    config.cache_config.num_gpu_blocks_override = ours.least
    assert planned(config, found, 0).num_blocks == ours.least


def test_records_are_vllms() -> None:
    given = inspect.signature(DeepseekV4SWACache).parameters
    assert given["packed_bytes_per_token"].default == FP8.window == FP8.compressed
    assert given["packed_page_alignment"].default == FP8.alignment
    assert DeepseekV41IndexerBackend.get_supported_kernel_block_sizes() == [DSV41.block]
    keys = {"fp8": False, "mxfp4": True}
    assert {name: attention._indexer_k_cache_head_dim(128, four) for name, four in keys.items()} == DSV41.index_keys


def test_two_steps_are_under_way(serve_config: Configure) -> None:
    config = serve_config("--max-num-batched-tokens=4096")
    assert config.max_in_flight_tokens == Demand(1, 4096, 0).batches * 4096
