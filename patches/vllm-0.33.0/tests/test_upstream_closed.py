"""What upstream closed by itself, or by configuration: no patch, but a bump must not lose it."""

import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import build_offloading_config
from vllm.models.deepseek_v41.common import engram
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.mla import indexer
from vllm.v1.core.kv_cache_planning import kv_cache_groups_tp_replicas
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheTensor,
    MLAAttentionSpec,
)
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

Configure = Callable[..., VllmConfig]

TP = 4
BLOCKS = 8
HOST_BYTES = 64 << 20


def _offload(serve_config: Configure, spec: KVCacheSpec) -> CPUOffloadingSpec:
    """The host tier of the KV cache for one layer of `spec` on four ranks."""
    extra = {"cpu_bytes_to_use": HOST_BYTES}
    transfer = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
    config = serve_config("--kv-transfer-config", json.dumps(transfer))
    page = spec.page_size_bytes
    groups = [KVCacheGroupSpec(["layer"], spec)]
    cache = KVCacheConfig(
        num_blocks=BLOCKS,
        kv_cache_tensors=[
            KVCacheTensor(size=page * BLOCKS, layers=["layer"], layer_stride=page * BLOCKS, block_stride=page)
        ],
        kv_cache_groups=groups,
    )
    cache.kv_tp_replicas = kv_cache_groups_tp_replicas(groups, TP)
    return CPUOffloadingSpec(build_offloading_config(config, cache))


def test_offload_keeps_one_copy_of_replicated_kv(serve_config: Configure) -> None:
    spec = MLAAttentionSpec(block_size=64, num_kv_heads=1, head_size=576, dtype=torch.bfloat16, max_tp_shards=1)
    tier = _offload(serve_config, spec)
    assert tier.replicated_layout
    assert tier.kv_bytes_per_chunk == spec.page_size_bytes
    assert tier.num_chunks == HOST_BYTES // spec.page_size_bytes


def test_offload_keeps_every_shard_of_sharded_kv(serve_config: Configure) -> None:
    spec = FullAttentionSpec(block_size=64, num_kv_heads=2, head_size=128, dtype=torch.bfloat16)
    tier = _offload(serve_config, spec)
    assert not tier.replicated_layout
    assert tier.kv_bytes_per_chunk == TP * spec.page_size_bytes
    assert tier.num_chunks == HOST_BYTES // (TP * spec.page_size_bytes)


def _shards(config: VllmConfig, monkeypatch: pytest.MonkeyPatch, rows: int) -> list[int] | None:
    """The rows that each rank scores in a prefill of `rows` tokens, as the indexer's builder plans it."""
    monkeypatch.setattr(indexer, "num_compute_units", lambda index: 188)
    monkeypatch.setattr(indexer, "build_prefill_chunk_metadata", lambda *args, **kwargs: None)
    spec = MLAAttentionSpec(block_size=128, num_kv_heads=1, head_size=132, dtype=torch.uint8)
    with set_current_vllm_config(config):
        builder = indexer.DeepseekV32IndexerMetadataBuilder(
            spec, ["layer"], config, torch.device("cpu"), block_table_width=64
        )
    starts, lens = torch.tensor([0, rows], dtype=torch.int32), torch.tensor([rows], dtype=torch.int32)
    metadata = builder.build(
        0,
        CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=lens,
            seq_lens_cpu_upper_bound=lens,
            num_reqs=1,
            num_actual_tokens=rows,
            max_query_len=rows,
            max_seq_len=rows,
            block_table_tensor=torch.zeros(1, 64, dtype=torch.int32),
            slot_mapping=torch.arange(rows),
        ),
    )
    return metadata.prefill.row_shard_sizes


@pytest.mark.parametrize(("rows", "sharded"), [(2047, False), (2048, True), (8192, True)])
def test_indexer_rows_are_sharded_from_the_configured_number(
    serve_config: Configure, monkeypatch: pytest.MonkeyPatch, rows: int, sharded: bool
) -> None:
    config = serve_config("--attention-config", '{"indexer_tp_shard_min_rows": 2048}')
    sizes = _shards(config, monkeypatch, rows)
    if not sharded:
        assert sizes is None
        return
    assert sizes is not None
    assert sum(sizes) == rows
    assert len(sizes) == TP
    # Row i reads i keys: ranks with later rows take fewer of them, for equal work.
    assert sizes == sorted(sizes, reverse=True)
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    work = [(end * (end + 1) - start * (start + 1)) // 2 for start, end in itertools.pairwise(ends)]
    assert max(work) - min(work) < 0.01 * sum(work)


def test_indexer_rows_are_replicated_by_default(serve_config: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _shards(serve_config(), monkeypatch, 8192) is None


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 of 4, without a process group and with a card's core count."""
    monkeypatch.setattr(engram, "get_tensor_model_parallel_world_size", lambda: TP)
    monkeypatch.setattr(engram, "get_tensor_model_parallel_rank", lambda: 1)
    monkeypatch.setattr(engram, "get_engram_dp_size", lambda: 1)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(multi_processor_count=188))


def _engram(config: VllmConfig) -> Any:
    """The part of an Engram layer that stores and looks up its table, as the model makes it."""
    layout = engram.EngramLayout.from_config(config.model_config.hf_config)
    layer: Any = engram.Engram.__new__(engram.Engram)
    torch.nn.Module.__init__(layer)
    layer._prefetch_stream = None
    with set_current_vllm_config(config):
        layer.embed_tokens = layer._create_embedding(layout, 0)
    layer._init_staging(16, layout.head_dim)
    return layer


@pytest.mark.usefixtures("one_rank")
def test_engram_lives_on_the_gpu_by_configuration(serve_config: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = serve_config("--engram-config", '{"cpu_offload": false}')
    layer = _engram(config)
    table = layer.embed_tokens
    weight, scales = table._storage()
    # The device's own tensors, not views of host memory; on the default device, which serving sets to the card.
    assert weight.data_ptr() == table.weight.data_ptr()
    assert scales.data_ptr() == table.weight_scale_inv.data_ptr()
    assert table.weight.device.type == torch.get_default_device().type
    assert table.weight.shape == (table.part_num_embeddings, 64)

    looked_up: list[tuple[torch.Tensor, torch.Tensor]] = []
    monkeypatch.setattr(table, "lookup", lambda ids, rows: looked_up.append((ids, rows)))
    ids = torch.zeros(16, 8, dtype=torch.int64)
    layer.prepare_embeddings(ids)
    assert len(looked_up) == 1
    assert looked_up[0][0] is ids
    assert looked_up[0][1].data_ptr() == layer.staged_rows.data_ptr()


@pytest.mark.usefixtures("one_rank")
def test_engram_lives_in_host_memory_by_default(serve_config: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[bool] = []

    def allocate(self: Any) -> tuple[torch.Tensor, torch.Tensor]:
        pinned.append(self.cpu_offload)
        raise MemoryError

    monkeypatch.setattr(engram, "is_uva_available", lambda: True)
    monkeypatch.setattr(engram.ParallelEngramEmbedding, "_allocate_weights", allocate)
    with pytest.raises(MemoryError):
        _engram(serve_config())
    assert pinned == [True]
