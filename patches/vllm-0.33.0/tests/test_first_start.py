"""What a first start fills is what the next one finds: vLLM's hash of its configuration, which names its caches."""

import json
from collections.abc import Callable

import pytest
from vllm.config import VllmConfig
from vllm.model_executor.warmup.flashinfer_autotune_cache import _normalize_cache_config_for_hash

from serving.startup import ignored

Configure = Callable[..., VllmConfig]

_OFFLOAD = "--kv-offloading-size=64"
_PROMPTS = {"kv_connector_extra_config": {"offload_prompt_only": True}}
_DISK = {
    "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec",
        "secondary_tiers": [{"type": "fs", "root_dir": "/var/lib/moet-kv/x"}],
    }
}
# Two values of each flag that serving/startup/ignored.py names, with the flags that they need.
TWO = {
    "--gpu-memory-utilization": (["--gpu-memory-utilization=0.92"], ["--gpu-memory-utilization=0.94"]),
    "--host": (["--host=192.0.2.1"], []),
    "--kv-transfer-config": (
        [_OFFLOAD, f"--kv-transfer-config={json.dumps(_PROMPTS)}"],
        [_OFFLOAD, f"--kv-transfer-config={json.dumps(_DISK)}"],
    ),
    "--num-gpu-blocks-override": (["--num-gpu-blocks-override=5142"], []),
    "--port": (["--port=1234"], []),
    "--profiler-config": (['--profiler-config={"profiler":"torch","torch_profiler_dir":"/var/lib/moet-profile"}'], []),
    "--served-model-name": (["--served-model-name=other"], []),
}


def _hash(config: VllmConfig) -> str:
    # As flashinfer_autotune_cache_hash() asks for it; the compile cache's is made of the same.
    _normalize_cache_config_for_hash(config.cache_config)
    return config.compute_hash(include_version=False)


def test_every_flag_is_held_against_the_hash() -> None:
    assert set(TWO) == set(ignored.FLAGS)


@pytest.mark.parametrize("flag", ignored.FLAGS)
def test_flag_changes_no_cache(serve_config: Configure, flag: str) -> None:
    one, other = TWO[flag]
    assert _hash(serve_config(*one)) == _hash(serve_config(*other))


@pytest.mark.parametrize(
    "flag",
    [
        "--max-num-seqs=7",
        "--max-num-batched-tokens=1024",
        "--max-model-len=4096",
        "--max-cudagraph-capture-size=32",
        "--kv-offloading-size=64",
        '--attention-config={"indexer_tp_shard_min_rows":2048}',
    ],
)
def test_flag_that_counts_changes_them(serve_config: Configure, flag: str) -> None:
    assert _hash(serve_config(flag)) != _hash(serve_config())
