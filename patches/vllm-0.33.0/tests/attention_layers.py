"""DeepSeek V4.1's attention layers as its model makes them, on the processor, and caches as a worker makes them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.worker.gpu import attn_utils
from vllm.v1.worker.utils import allocate_kv_cache

from serving.plan.geometry import DSV41

# Of the checkpoint's 40 layers two have a window alone; the others share the caches of four.
RATIOS = (0, 0, *[2] * 18, *[1] * 20)
SOURCES = (2, 8, 14, 20)
# What stands for it where it need not be whole: each kind of layer once, and one of the drafter.
FEW_RATIOS, FEW_SOURCES = (0, 2, 2, 1, 1), (1, 3)

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 16,
    "original_max_position_embeddings": 65_536,
    "beta_fast": 32,
    "beta_slow": 1,
}


@contextmanager
def one_rank(folder: Path) -> Iterator[None]:
    """A world of one, which layers ask for the number of their ranks; other tests need not find it."""
    assert not parallel_state.model_parallel_is_initialized()
    try:
        with set_current_vllm_config(VllmConfig()):
            parallel_state.init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
            parallel_state.initialize_model_parallel(1, 1)
        yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def configured(serve_config: Callable[..., VllmConfig], dtype: str, *flags: str) -> VllmConfig:
    """A server's, of one card, with records of this data type."""
    config = serve_config(f"--kv-cache-dtype={dtype}", "--tensor-parallel-size=1", *flags)
    config.cache_config.block_size = DSV41.block
    config.cache_config.kv_cache_layout = "BLHNC"
    return config


def make(attention: type, config: VllmConfig, ratios: Sequence[int], sources: Sequence[int], drafts: int) -> list[Any]:
    """The layers of a class of attention: one of each of `ratios`, and the drafter's; `sources` own their caches."""
    hf: Any = config.model_config.hf_config
    hf.num_hidden_layers, hf.compress_ratios = len(ratios), list(ratios)
    hf.kv_source_layer_ids = hf.index_source_layer_ids = list(sources)
    hf.rms_norm_eps, hf.rope_theta, hf.compress_rope_theta, hf.rope_parameters = 1e-6, 1e4, 1.6e5, _YARN
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    top = torch.zeros(64, hf.index_topk, dtype=torch.int32)
    try:
        with set_current_vllm_config(config):
            return [
                attention(config, prefix=f"model.layers.{number}.attn", topk_indices_buffer=top)
                for number in range(len(ratios) + drafts)
            ]
    finally:
        torch.set_default_dtype(default)


def planned(config: VllmConfig, available: int) -> KVCacheConfig:
    """What vLLM makes of `available` bytes for the layers that were made under `config`."""
    specs = attn_utils.get_kv_cache_spec(config)
    (found,) = get_kv_cache_configs(config, [specs], [available], get_global_kv_cache_groups(config, [specs]))
    return found


def bind_caches(config: VllmConfig, filler: int) -> torch.Tensor:
    """Gives all layers made under `config` their views of one memory, which it returns: uint8, full of `filler`."""
    config.cache_config.num_gpu_blocks_override = 128
    layout = config.cache_config.get_resolved_kv_cache_layout()
    views = allocate_kv_cache(planned(config, 1 << 30), torch.device("cpu"), layout)
    layers = config.compilation_config.static_forward_context
    for name, view in views.items():
        layers[name].bind_kv_cache(view)
    memory = next(iter(views.values())).untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8).set_(memory)
    whole.fill_(filler)
    return whole


def stub_forward_context(patch: pytest.MonkeyPatch, modules: Sequence[Any], metadata: dict[str, Any]) -> None:
    """Makes `metadata` what modules find where a step's context is."""

    class Context:
        attn_metadata = metadata

    for module in modules:
        patch.setattr(module, "get_forward_context", Context)
