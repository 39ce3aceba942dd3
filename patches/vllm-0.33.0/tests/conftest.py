"""What the tests of the steps share.

They run inside the image, under the two stub libraries of tests/fixtures, which make vLLM believe in
four sm_120 cards: its sm_120 paths are taken up to the launch of a kernel. No network, no model files.
"""

import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# DeepSeek-V4.1-Flash as its config.json has it, but for the number of layers and the Engram tables.
_MODEL = {
    "model_type": "deepseek_v41",
    "architectures": ["DeepseekV41ForCausalLM"],
    "text_config": {
        "vocab_size": 1024,
        "hidden_size": 5120,
        "num_hidden_layers": 4,
        "num_attention_heads": 64,
        "num_key_value_heads": 1,
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "q_lora_rank": 1280,
        "o_lora_rank": 1024,
        "o_groups": 8,
        "sliding_window": 128,
        "index_topk": 512,
        "index_n_heads": 32,
        "index_head_dim": 128,
        "n_routed_experts": 384,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 2304,
        "max_position_embeddings": 8192,
        "compress_ratios": [0, 4, 128, 4],
        "hc_mult": 4,
        "engram_layer_ids": [1],
        "engram_num_embeddings": [4096],
        "engram_max_ngram_size": 3,
        "engram_n_heads": 4,
        "engram_head_dim": 64,
        "engram_compressed_vocab_size": 512,
        "engram_pad_token_id": 0,
        "engram_vocab_size": 200,
        "torch_dtype": "bfloat16",
    },
}


@pytest.fixture(scope="session", autouse=True)
def _sm120() -> None:
    from vllm.platforms import current_platform

    if not (current_platform.is_cuda() and current_platform.is_device_capability_family(120)):
        pytest.exit(
            "vLLM sees no sm_120 card: put the stub libraries of //tests/fixtures on LD_LIBRARY_PATH",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Imports modules anew under given environment variables, as a new process would.

    `fresh("a.b", "a.c", SWITCH="0")` returns the last one; None for a value unsets the variable. The old modules
    are back in their places after the test.
    """

    def load(*names: str, **switches: str | None) -> ModuleType:
        for switch, value in switches.items():
            if value is None:
                monkeypatch.delenv(switch, raising=False)
            else:
                monkeypatch.setenv(switch, value)
        for name in names:
            parent, _, leaf = name.rpartition(".")
            monkeypatch.setattr(importlib.import_module(parent), leaf, importlib.import_module(name))
            monkeypatch.delitem(sys.modules, name)
        return [importlib.import_module(name) for name in names][-1]

    return load


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Makes the card one of another compute capability: `device(9, 0)`."""
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    def become(major: int, minor: int) -> None:
        def answer(device_id: int = 0) -> DeviceCapability:
            del device_id
            return DeviceCapability(major, minor)

        monkeypatch.setattr(type(current_platform), "get_device_capability", answer)

    return become


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines that name a switch, as a server logs them; what vLLM has written once it may write once more."""
    from vllm import logger

    lines: list[str] = []
    keeper = logging.Handler()
    monkeypatch.setattr(keeper, "emit", lambda record: lines.append(record.getMessage()))
    keeper.addFilter(lambda record: "VLLM_MOET_" in record.getMessage())
    logger._print_info_once.cache_clear()
    vllm = logging.getLogger("vllm")
    level = vllm.level
    vllm.setLevel(logging.INFO)
    vllm.addHandler(keeper)
    yield lines
    vllm.removeHandler(keeper)
    vllm.setLevel(level)


@pytest.fixture(scope="session")
def serve_config(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., "VllmConfig"]:
    """The VllmConfig that `vllm serve MODEL -tp 4 FLAGS...` would run with, through vLLM's own parser."""
    model: Path = tmp_path_factory.mktemp("model")
    (model / "config.json").write_text(json.dumps(_MODEL))

    def configure(*flags: str) -> "VllmConfig":
        from vllm.engine.arg_utils import EngineArgs
        from vllm.entrypoints.common.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        always = ["--model", str(model), "--skip-tokenizer-init", "--load-format", "dummy"]
        spread = ["--tensor-parallel-size", "4", "--distributed-executor-backend", "mp"]
        arguments = make_arg_parser(FlexibleArgumentParser()).parse_args([*always, *spread, *flags])
        return EngineArgs.from_cli_args(arguments).create_engine_config()

    return configure
