"""Every argument that a profile passes, asked of the parser in the image."""

from typing import Any

import pytest

from tests.engine import serving
from tests.engine.containers import Outcome

pytestmark = pytest.mark.job("serve-parser")


@pytest.fixture
def answers(outcome: Outcome) -> dict[str, Any]:
    return outcome.document()


def test_vllm_takes_every_launch_and_knows_every_flag_by_its_full_name(answers: dict[str, Any]) -> None:
    launches = serving.launches(serving.line())
    assert len(answers["lists"]) == len(launches) + 1 > 30
    wrong = {launch.arguments: one["faults"] for launch, one in zip(launches, answers["lists"], strict=False)}
    assert {arguments: faults for arguments, faults in wrong.items() if faults} == {}


def test_parser_would_say_what_is_wrong(answers: dict[str, Any]) -> None:
    assert answers["lists"][-1]["faults"] == ["--max-num-seq is no flag", "speculative_config has no methd"]


def test_vllm_knows_every_variable(answers: dict[str, Any]) -> None:
    assert answers["unknown_variables"] == ["VLLM_MOET_NO_SUCH"]


def test_values_arrive_as_they_were_set(answers: dict[str, Any]) -> None:
    found = dict(zip(serving.CASES, answers["lists"], strict=False))
    assert found["default"]["model"] == "/model" and found["default"]["host"] == "0.0.0.0"
    assert found["default"]["numbers"] == [524288, 8, 0.94]
    assert found["default"]["speculative"]["num_speculative_tokens"] == 5
    assert found["served"]["attention"] == {"indexer_kv_dtype": "mxfp4", "indexer_tp_shard_min_rows": 2048}
    size, extra = found["everything"]["offload"]
    assert size == 64 and extra["offload_prompt_only"] is False
    assert extra["secondary_tiers"] == [{"type": "fs", "root_dir": "/var/lib/moet-kv/fp8_ds_mla-indexer-fp8"}]
    assert found["hostile"]["name"] == ["--x 'y' \"z\" $A {\n"]
    assert found["no speculation"]["speculative"] is None


def test_several_hosts_are_told_who_they_are(answers: dict[str, Any]) -> None:
    head, worker = answers["lists"][-3:-1]
    assert head["nodes"] == [2, 0, "192.0.2.1", False]
    assert worker["nodes"] == [2, 1, "192.0.2.1", True]
