"""Step mxfp4-indexer: who may keep index keys in MXFP4, and what that makes of cache and kernels on sm_120."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.models.deepseek_v41 import attention
from vllm.utils import deep_gemm
from vllm.v1.attention.backends.mla import indexer
from vllm.v1.attention.backends.mla.sparse_indexer import DeepseekV41SparseIndexerMetadataBuilder

Configure = Callable[..., VllmConfig]

REFUSED = "requires Blackwell datacenter GPUs"


def _config(serve_config: Configure, form: str = "mxfp4", **more: object) -> VllmConfig:
    return serve_config("--attention-config", json.dumps({"indexer_kv_dtype": form, **more}))


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert indexer._SM120_MXFP4_INDEXER is False
    monkeypatch.setattr(indexer, "_SM120_MXFP4_INDEXER", True)


@pytest.mark.parametrize(("switch", "opens"), [(None, False), ("0", False), ("1", True)])
def test_the_switch_opens_the_gate(
    fresh: Callable[..., ModuleType], serve_config: Configure, switch: str | None, opens: bool
) -> None:
    module: Any = fresh("vllm.v1.attention.backends.mla.indexer", VLLM_MOET_MXFP4_INDEXER=switch)
    config = _config(serve_config)
    if opens:
        assert module.dsa_indexer_uses_fp4(config)
    else:
        with pytest.raises(ValueError, match=REFUSED):
            module.dsa_indexer_uses_fp4(config)


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize("form", ["auto", "fp8"])
def test_on_the_format_is_still_asked_for(serve_config: Configure, form: str) -> None:
    assert not indexer.dsa_indexer_uses_fp4(_config(serve_config, form))


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize(
    ("capability", "opens"),
    [((9, 0), False), ((10, 0), True), ((10, 3), True), ((12, 0), True), ((12, 1), False)],
)
def test_on_other_devices_keep_their_gate(
    serve_config: Configure, device: Callable[[int, int], None], capability: tuple[int, int], opens: bool
) -> None:
    config = _config(serve_config)
    device(*capability)
    if opens:
        assert indexer.dsa_indexer_uses_fp4(config)
    else:
        with pytest.raises(ValueError, match=REFUSED):
            indexer.dsa_indexer_uses_fp4(config)


@pytest.mark.usefixtures("on")
def test_on_other_models_keep_their_gate(serve_config: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    config = _config(serve_config)
    monkeypatch.setattr(config.model_config.hf_config, "model_type", "deepseek_v4")
    with pytest.raises(ValueError, match=REFUSED):
        indexer.dsa_indexer_uses_fp4(config)


@pytest.mark.usefixtures("on")
def test_on_without_the_kernel_both_switches_are_named(
    serve_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep_gemm, "_SM120_PAGED_MQA_LOGITS", False)
    with pytest.raises(ValueError, match=r"VLLM_MOET_MXFP4_INDEXER=1 .* VLLM_MOET_PAGED_MQA_LOGITS=0 .* set it to 1"):
        indexer.dsa_indexer_uses_fp4(_config(serve_config))


@pytest.mark.usefixtures("on")
@pytest.mark.parametrize(("form", "key_bytes"), [("mxfp4", 68), ("fp8", 132)])
def test_on_a_key_takes_half_the_bytes(serve_config: Configure, form: str, key_bytes: int) -> None:
    """As the model makes the cache of a layer that does not compress."""
    config = _config(serve_config, form)
    config.cache_config.block_size = 128
    width = attention._indexer_k_cache_head_dim(128, indexer.dsa_indexer_uses_fp4(config))
    with set_current_vllm_config(config):
        cache = attention.DeepseekV4IndexerCache(width, torch.uint8, f"{form}.k_cache", config.cache_config)
        spec: Any = cache.get_kv_cache_spec(config)
    assert spec.num_states == 128
    assert spec.unpadded_page_size_bytes == 128 * key_bytes
    assert spec.page_size_bytes % 16 == 0


@pytest.mark.usefixtures("on")
def test_on_scoring_candidate_blocks_alone_stays_refused(
    serve_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _config(serve_config, indexer_sparse_logits=True)
    text: Any = config.model_config.hf_text_config
    for name, value in {"candidate_block_size": 16, "candidate_topk_blocks": 64}.items():
        monkeypatch.setattr(text, name, value, raising=False)
    monkeypatch.setattr(indexer, "num_compute_units", lambda index: 188)
    spec = indexer.MLAAttentionSpec(block_size=128, num_kv_heads=1, head_size=68, dtype=torch.uint8)
    with set_current_vllm_config(config), pytest.raises(ValueError, match="requires an SM100-class GPU"):
        DeepseekV41SparseIndexerMetadataBuilder(spec, ["layer"], config, torch.device("cpu"), block_table_width=4)


@pytest.fixture(scope="module")
def compiled() -> dict[str, list[bool]]:
    """What vLLM's kernels for keys and queries become for sm_120a."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_index_kernels.py")],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "CUTE_DSL_ARCH": "sm_120a"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, list[bool]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("kernel", ["keys", "queries by 1", "queries by 4"])
def test_vllms_kernels_for_the_format_compile_for_sm120(compiled: dict[str, list[bool]], kernel: str) -> None:
    for_sm120, makes_e2m1 = compiled[kernel]
    assert for_sm120
    assert makes_e2m1


def test_deepgemm_has_the_other_halves_for_sm120() -> None:
    """Prefill scores gathered keys, and layers that compress have pages of 64: both are its kernels."""
    headers = Path(deep_gemm.__file__).parents[1] / "third_party/deep_gemm/include/deep_gemm/impls"
    assert (headers / "sm120_fp4_mqa_logits.cuh").is_file()
    assert (headers / "sm120_fp4_paged_mqa_logits.cuh").is_file()
