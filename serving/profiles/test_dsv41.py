"""The profile against the line that it serves."""

import ast
from pathlib import Path

import pytest

from images.manifest import model as manifest
from serving.profiles import load
from serving.profiles.model import Knob

PROFILE = load.load("dsv41")
# What users of the launcher before this one set.
KNOWN = [
    "BIND",
    "CACHE_DIR",
    "EXTRA_ARGS",
    "EXTRA_DOCKER_ARGS",
    "GPUS",
    "GPU_MEM_UTIL",
    "IMAGE",
    "INDEXER_KV_DTYPE",
    "INDEXER_TP_SHARD_MIN_ROWS",
    "KV_OFFLOAD_FS_DIR",
    "KV_OFFLOAD_GIB",
    "KV_OFFLOAD_PROMPT_ONLY",
    "KV_RECORD",
    "LANGUAGE_ONLY",
    "MAX_MODEL_LEN",
    "MAX_NUM_BATCHED_TOKENS",
    "MAX_NUM_SEQS",
    "MODEL_DIR",
    "NAME",
    "NCCL_P2P_LEVEL",
    "PORT",
    "PROFILER",
    "SERVED",
    "SPEC_TOKENS",
    "TP",
]


def steps() -> list[dict[str, object]]:
    """The steps of images/dsv41/line.bzl: their literal arguments by name."""
    nodes = ast.walk(ast.parse(Path("images/dsv41/line.bzl").read_text()))
    return [
        {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "step"
    ]


def test_a_first_start_may_take_as_long_as_vllm_waits_for_its_engine() -> None:
    assert PROFILE.first_start is not None
    assert PROFILE.first_start.deadline > int(PROFILE.serve.environment["VLLM_ENGINE_READY_TIMEOUT_S"])
    assert PROFILE.first_start.at_most["GPU_MEM_UTIL"] < float(str(PROFILE.knobs["GPU_MEM_UTIL"].default))


def test_every_switch_of_the_line_is_a_knob_and_no_other() -> None:
    line = {str(step["switch"]): (step.get("default", "1"), step.get("on", "1")) for step in steps() if step["switch"]}
    profile = {knob.name: (knob.default, knob.on) for knob in PROFILE.switches if knob.name != manifest.SELFTEST}
    assert profile == line


@pytest.mark.parametrize("step", steps(), ids=lambda step: str(step["name"]))
def test_a_switch_says_which_step_it_is_of(step: dict[str, object]) -> None:
    knob = PROFILE.knobs[str(step["switch"])]
    assert knob.meaning.startswith(f"step {step['number']}")
    assert ("another format" in knob.meaning) == (step["numerics"] == "format")


# Whether it is faster is the links' affair, and VLLM_MOET_SELFTEST, which SERVED wants first, sees one card at a time.
UNSERVED = "VLLM_MOET_P2P_ALLREDUCE"


def test_served_is_every_rounding_step_that_is_off_but_for_the_one_of_links() -> None:
    off = [step for step in steps() if step["numerics"] == "rounding" and step["default"] == "0"]
    assert UNSERVED in [step["switch"] for step in off]
    off = [step for step in off if step["switch"] != UNSERVED]
    assert PROFILE.knobs["SERVED"].presets == {str(step["switch"]): step.get("on", "1") for step in off}


def test_names_that_users_know_are_knobs() -> None:
    assert set(KNOWN) <= set(PROFILE.knobs)


@pytest.mark.parametrize("knob", PROFILE.knobs.values(), ids=lambda knob: knob.name)
def test_every_knob_does_something_and_says_what_it_is_for(knob: Knob) -> None:
    effects = (knob.flag, knob.json, knob.environment, knob.mount, knob.role, knob.presets)
    assert any(effects) or knob.kind == "switch"
    assert knob.meaning and not knob.meaning.endswith(".")
    if knob.kind in ("integer", "number"):
        assert knob.choices or (knob.minimum is not None and knob.maximum is not None)
