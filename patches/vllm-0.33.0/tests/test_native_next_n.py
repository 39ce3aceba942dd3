"""Step native-next-n: what the indexer's decode path hands to the sm_120 kernel."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.platforms import current_platform
from vllm.utils.deep_gemm import native_next_n_supported
from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata
from vllm.v1.kv_cache_interface import MLAAttentionSpec

# As many as step paged-mqa-logits takes; its test shows what becomes of more.
NEXT_N = range(1, 9)
SEQ_LENS = [100, 37, 4096]
SM_COUNT = 188

Configure = Callable[..., VllmConfig]


@pytest.fixture
def indexer(fresh: Callable[..., ModuleType]) -> Callable[[str | None], Any]:
    """The indexer's module, imported under a value of the switch."""

    def load(switch: str | None) -> Any:
        return fresh("vllm.v1.attention.backends.mla.indexer", VLLM_MOET_NATIVE_NEXT_N=switch)

    return load


def _speculating(serve_config: Configure, tokens: int) -> VllmConfig:
    # The draft method does not matter to the indexer, and ngram needs no draft model.
    draft = {"method": "ngram", "num_speculative_tokens": tokens, "prompt_lookup_max": 3}
    return serve_config("--speculative-config", json.dumps(draft))


def _family(monkeypatch: pytest.MonkeyPatch, family: int) -> None:
    monkeypatch.setattr(
        type(current_platform),
        "is_device_capability_family",
        classmethod(lambda cls, capability, device_id=0: capability == family),
    )


def _spec() -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=128, num_kv_heads=1, head_size=132, dtype=torch.uint8)


def test_on_every_next_n_is_native(indexer: Callable[[str | None], Any]) -> None:
    module = indexer("1")
    assert all(module._supports_native_decode(next_n) for next_n in NEXT_N)
    assert all(native_next_n_supported(next_n) for next_n in NEXT_N)


@pytest.mark.parametrize("switch", [None, "0"], ids=["default", "off"])
def test_off_only_one_and_two_are_native(indexer: Callable[[str | None], Any], switch: str | None) -> None:
    module = indexer(switch)
    assert [next_n for next_n in NEXT_N if module._supports_native_decode(next_n)] == [1, 2]


@pytest.mark.parametrize(("family", "native"), [(90, [1, 2, 4]), (100, list(NEXT_N)), (110, [1, 2])])
def test_on_other_architectures_keep_their_gate(
    indexer: Callable[[str | None], Any], monkeypatch: pytest.MonkeyPatch, family: int, native: list[int]
) -> None:
    module = indexer("1")
    _family(monkeypatch, family)
    assert [next_n for next_n in NEXT_N if module._supports_native_decode(next_n)] == native


def test_on_without_deepgemm_the_gate_stays_shut(
    indexer: Callable[[str | None], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = indexer("1")
    monkeypatch.setattr(module, "has_deep_gemm", lambda: False)
    assert [next_n for next_n in NEXT_N if module._supports_native_decode(next_n)] == [1, 2]


@pytest.mark.parametrize(
    ("switch", "flattens", "graphs"),
    [("1", False, AttentionCGSupport.UNIFORM_BATCH), ("0", True, AttentionCGSupport.ALWAYS)],
    ids=["on", "off"],
)
def test_engine_decides_on_flattening_and_graphs(
    indexer: Callable[[str | None], Any],
    serve_config: Configure,
    switch: str,
    flattens: bool,
    graphs: AttentionCGSupport,
) -> None:
    module, config = indexer(switch), _speculating(serve_config, 5)
    assert module._use_flattening(config) is flattens
    assert module.DeepseekV32IndexerMetadataBuilder.get_cudagraph_support(config, _spec()) is graphs


@pytest.mark.parametrize("draft_tokens", [5, 7])
def test_on_decode_metadata_holds_one_row_a_request(
    indexer: Callable[[str | None], Any],
    serve_config: Configure,
    monkeypatch: pytest.MonkeyPatch,
    draft_tokens: int,
) -> None:
    """Each request passes its next_n queries with a causal length each, instead of next_n requests with one."""
    module, next_n = indexer("1"), 1 + draft_tokens
    scheduled: list[torch.Tensor] = []

    def schedule(lens: torch.Tensor, block_size: int, sms: int, indices: torch.Tensor | None = None) -> torch.Tensor:
        scheduled.append(lens.clone())
        return torch.zeros(sms + 1, 2, dtype=torch.int32)

    monkeypatch.setattr(module, "num_compute_units", lambda index: SM_COUNT)
    monkeypatch.setattr(module, "get_paged_mqa_logits_metadata", schedule)
    config = _speculating(serve_config, draft_tokens)
    with set_current_vllm_config(config):
        builder = module.DeepseekV32IndexerMetadataBuilder(
            _spec(), ["layer"], config, torch.device("cpu"), block_table_width=64
        )
    assert not builder.use_flattening

    requests = len(SEQ_LENS)
    starts = torch.arange(requests + 1, dtype=torch.int32) * next_n
    seq_lens = torch.tensor(SEQ_LENS, dtype=torch.int32)
    tables = torch.arange(requests * 64, dtype=torch.int32).view(requests, 64)
    decode = builder.build(
        0,
        CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=seq_lens,
            seq_lens_cpu_upper_bound=seq_lens,
            num_reqs=requests,
            num_actual_tokens=requests * next_n,
            max_query_len=next_n,
            max_seq_len=max(SEQ_LENS),
            block_table_tensor=tables,
            slot_mapping=torch.arange(requests * next_n),
        ),
    ).decode

    causal = torch.tensor([[length - next_n + 1 + i for i in range(next_n)] for length in SEQ_LENS], dtype=torch.int32)
    torch.testing.assert_close(decode.seq_lens, causal)
    torch.testing.assert_close(scheduled, [causal])
    torch.testing.assert_close(decode.block_table, tables)
    assert decode.decode_lens.tolist() == [next_n] * requests
    assert not decode.requires_padding
