import pytest

from serving.launch import settings
from serving.profiles import load
from tools.cli.errors import UserError

PROFILE = load.load("dsv41")


def test_set_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"MAX_NUM_SEQS": "16", "PORT": "9000", "TP": "", "UNRELATED": "x"}
    found = settings.resolve(PROFILE, ["MAX_NUM_SEQS=32"], environment).by_name
    assert (found["MAX_NUM_SEQS"].value, found["MAX_NUM_SEQS"].source) == (32, "--set")
    assert (found["PORT"].value, found["PORT"].source) == (9000, "environment")
    assert (found["TP"].value, found["TP"].source) == (4, "default")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("GPU_MEM_UTL=0.9", "'GPU_MEM_UTL' is no knob of dsv41: did you mean GPU_MEM_UTIL?; `moet serve knobs dsv41`"),
        ("gpu-mem-util=0.9", "'gpu-mem-util' is no knob of dsv41: did you mean GPU_MEM_UTIL?"),
        ("VLLM_MOET_MOE_BLOK_M=64", "is no knob of dsv41: did you mean VLLM_MOET_MOE_BLOCK_M?"),
        ("QQQQQQ=1", "--set: 'QQQQQQ' is no knob of dsv41; `moet serve knobs dsv41` lists them"),
        ("=1", "--set: '' is no knob of dsv41"),
        ("TP", "--set TP: expected TP=VALUE"),
        ("a\nb=1", "--set: 'a\\nb' is no knob of dsv41"),
        ("TP=3", "TP='3' (--set): expected one of 1, 2, 4, 8"),
        ("TP=", "TP='' (--set): expected one of 1, 2, 4, 8 (GPUs)"),
        ("GPU_MEM_UTIL=1.5", "GPU_MEM_UTIL='1.5' (--set): expected a number from 0.5 to 0.98 (of the GPU's memory)"),
        ("KV_RECORD=nvfp4", "KV_RECORD='nvfp4' (--set): is refused: vLLM 0.33.0 has it for no model with MLA; "),
    ],
)
def test_what_cannot_be_set_is_one_line(given: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        settings.resolve(PROFILE, [given], {})
    assert said in str(error.value) and "\n" not in str(error.value)


def test_wrong_value_of_the_environment_says_that_it_is_from_there() -> None:
    with pytest.raises(UserError, match=r"^PORT='http' \(environment\): expected an integer from 1 to 65535"):
        settings.resolve(PROFILE, [], {"PORT": "http"})


def test_knob_set_twice_is_refused() -> None:
    with pytest.raises(UserError, match="--set TP: is set twice"):
        settings.resolve(PROFILE, ["TP=2", "TP=4"], {})


def test_value_that_needs_switches_turns_them_on() -> None:
    found = settings.resolve(PROFILE, ["INDEXER_KV_DTYPE=mxfp4"], {}).by_name
    switch = found["VLLM_MOET_MXFP4_INDEXER"]
    assert (switch.value, switch.source, switch.explicit) == ("1", "INDEXER_KV_DTYPE=mxfp4", False)
    assert found["VLLM_MOET_PAGED_MQA_LOGITS"].source == "default"


@pytest.mark.parametrize("switch", ["VLLM_MOET_MXFP4_INDEXER", "VLLM_MOET_PAGED_MQA_LOGITS"])
def test_value_whose_switch_was_turned_off_is_refused(switch: str) -> None:
    with pytest.raises(UserError) as error:
        settings.resolve(PROFILE, ["INDEXER_KV_DTYPE=mxfp4"], {switch: "0"})
    needs = f"needs {switch}=1, which is set to 0 (environment)"
    assert str(error.value) == f"INDEXER_KV_DTYPE=mxfp4 (--set) {needs}"


def test_preset_leaves_what_was_set() -> None:
    found = settings.resolve(PROFILE, ["SERVED=1", "VLLM_MOET_NATIVE_NEXT_N=0"], {}).by_name
    assert (found["VLLM_MOET_MOE_BLOCK_M"].value, found["VLLM_MOET_MOE_BLOCK_M"].source) == ("64", "SERVED=1")
    assert (found["VLLM_MOET_NATIVE_NEXT_N"].value, found["VLLM_MOET_NATIVE_NEXT_N"].source) == ("0", "--set")
    assert found["VLLM_MOET_MXFP4_INDEXER"].value == "0"


def test_knob_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"KV_OFFLOAD_FS_DIR \(--set\) needs KV_OFFLOAD_GIB, which is 0: set both"):
        settings.resolve(PROFILE, ["KV_OFFLOAD_FS_DIR=/kv"], {})
    settings.resolve(PROFILE, ["KV_OFFLOAD_FS_DIR=/kv", "KV_OFFLOAD_GIB=1"], {})


def test_switch_that_there_is_not_is_named() -> None:
    environment = {"VLLM_MOET_MOE_BLOK_M": "64", "VLLM_MOET_MOE_FRONT": "1", "VLLM_PORT": "1"}
    said = "VLLM_MOET_MOE_BLOK_M (environment) is no switch of dsv41 and is not passed on: did you mean "
    assert settings.unknown_switches(PROFILE, environment) == [f"{said}VLLM_MOET_MOE_BLOCK_M?"]
