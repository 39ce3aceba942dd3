import json

import pytest

from serving.launch import settings
from serving.launch.launch import Bind, Network, Node
from serving.launch.plan import Plan, plan
from serving.profiles import load
from tools.cli.errors import UserError

IMAGE = "dsv41:vllm0.33.0-r2-dev"


def planned(*given: str, network: Network = "published", node: Node | None = None) -> Plan:
    found = settings.resolve(load.load("dsv41"), ["MODEL_DIR=/m", *given], {})
    return plan(found, IMAGE, None, network, node) if node else plan(found, IMAGE, None, network)


def flag(found: Plan, name: str) -> str | None:
    values = [word.partition("=")[2] for word in found.launch.arguments if word.partition("=")[0] == name]
    assert len(values) <= 1
    return values[0] if values else None


def test_profile_as_it_is() -> None:
    found = planned()
    assert found.launch.arguments[:2] == ("serve", "/model")
    assert flag(found, "--tensor-parallel-size") == "4"
    assert flag(found, "--host") == "0.0.0.0" and flag(found, "--port") == "8000"
    assert json.loads(flag(found, "--speculative-config") or "")["num_speculative_tokens"] == 5
    for absent in ("--data-parallel-size", "--kv-offloading-size", "--kv-transfer-config", "--nnodes"):
        assert flag(found, absent) is None
    assert found.launch.binds == (Bind("/m", "/model", False), Bind("dsv41-cache", "/var/lib/moet", True))
    assert found.launch.gpus == ("0", "1", "2", "3")
    # The image knows its own switches; one that nobody set is left to it.
    assert not [name for name in found.launch.environment if name.startswith("VLLM_MOET_")]


def test_knobs_of_one_json_flag_are_merged_and_formats_have_folders_of_their_own() -> None:
    given = ["KV_OFFLOAD_GIB=64", "KV_OFFLOAD_FS_DIR=/kv", "KV_OFFLOAD_PROMPT_ONLY=0", "INDEXER_KV_DTYPE=mxfp4"]
    found = planned(*given)
    assert json.loads(flag(found, "--kv-transfer-config") or "") == {
        "kv_connector_extra_config": {
            "offload_prompt_only": False,
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "fs", "root_dir": "/var/lib/moet-kv/fp8_ds_mla-indexer-mxfp4"}],
        }
    }
    assert json.loads(flag(found, "--attention-config") or "") == {
        "indexer_kv_dtype": "mxfp4",
        "indexer_tp_shard_min_rows": 2048,
    }
    assert flag(found, "--kv-offloading-size") == "64"
    assert found.launch.environment["VLLM_MOET_MXFP4_INDEXER"] == "1"
    assert found.launch.shared_memory_gib == 96


def test_off_passes_nothing() -> None:
    found = planned("SPEC_TOKENS=0", "LANGUAGE_ONLY=0", "DP=1")
    assert flag(found, "--speculative-config") is None
    assert "--language-model-only" not in found.launch.arguments
    assert found.does["SPEC_TOKENS"] == ()


def test_boolean_flag_stands_alone_and_extra_arguments_come_last() -> None:
    found = planned("LANGUAGE_ONLY=1", "EXTRA_ARGS=--seed 1")
    assert "--language-model-only" in found.launch.arguments
    assert found.launch.arguments[-2:] == ("--seed", "1")


def test_switch_that_was_set_is_passed_even_at_its_default() -> None:
    environment = planned("VLLM_MOET_REASONING_TIERS=1", "VLLM_MOET_MOE_BLOCK_M=64").launch.environment
    assert environment["VLLM_MOET_REASONING_TIERS"] == "1" and environment["VLLM_MOET_MOE_BLOCK_M"] == "64"


def test_what_each_knob_does_is_in_the_launch() -> None:
    found = planned("SERVED=1", "KV_OFFLOAD_GIB=1")
    assert set(found.does) == set(load.load("dsv41").knobs)
    assert found.does["MAX_NUM_SEQS"] == ("--max-num-seqs=8",)
    assert found.does["VLLM_MOET_MOE_FRONT"] == ("VLLM_MOET_MOE_FRONT=1",)
    assert found.does["PORT"] == ("reached at port 8001",)
    for parts in found.does.values():
        for part in parts:
            name, _, value = part.partition("=")
            if name.startswith("VLLM_"):
                assert found.launch.environment[name] == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["TP=2", "GPUS=0"], "GPUS=0 (--set) names 1: TP x DP = 2 x 1 = 2 needs 2"),
        (["TP=2", "DP=2", "GPUS=0,1"], "GPUS=0,1 (--set) names 2: TP x DP = 2 x 2 = 4 needs 4"),
        (["EXTRA_ARGS=--port=1"], "EXTRA_ARGS: --port: --port is set by Moet"),
        (["EXTRA_DOCKER_ARGS=-p 80:80"], "EXTRA_DOCKER_ARGS: -p: is set by Moet"),
    ],
)
def test_what_does_not_fit_is_one_line(given: list[str], said: str) -> None:
    with pytest.raises(UserError) as error:
        planned(*given)
    assert str(error.value).startswith(said)


def test_model_must_be_named() -> None:
    with pytest.raises(UserError, match=r"^MODEL_DIR is not set: expected an absolute path: folder of the checkpoint"):
        plan(settings.resolve(load.load("dsv41"), [], {}), IMAGE, None, "published")


def test_one_of_several_hosts() -> None:
    head = planned("TP=8", "PORT=9000", network="host", node=Node(2, 0, "192.0.2.1", 29600))
    worker = planned("TP=8", network="host", node=Node(2, 1, "192.0.2.1", 29600))
    assert flag(head, "--host") == "127.0.0.1" and flag(head, "--port") == "9000"
    assert flag(worker, "--host") is None and "--headless" in worker.launch.arguments
    for rank, found in enumerate((head, worker)):
        assert flag(found, "--nnodes") == "2" and flag(found, "--node-rank") == str(rank)
        assert flag(found, "--master-addr") == "192.0.2.1" and flag(found, "--master-port") == "29600"
        assert len(found.launch.gpus) == 4
    assert worker.does["PORT"] == ()
