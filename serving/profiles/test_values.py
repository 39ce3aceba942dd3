import pytest

from serving.profiles import load, values
from serving.profiles.model import Knob, Value

KNOBS = load.load("dsv41").knobs


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("MAX_NUM_SEQS", "8", 8),
        ("GPU_MEM_UTIL", "0.92", 0.92),
        ("KV_OFFLOAD_GIB", "64", 64),
        ("KV_OFFLOAD_GIB", "1.50", 1.5),
        ("LANGUAGE_ONLY", "true", True),
        ("LANGUAGE_ONLY", "0", False),
        ("VLLM_MOET_MOE_BLOCK_M", "64", "64"),
        ("BIND", "::1", "::1"),
        ("BIND", "0:0:0:0:0:0:0:1", "::1"),
        ("GPUS", "0,2", ("0", "2")),
        ("GPUS", "GPU-8f6d0a52-1b3c", ("GPU-8f6d0a52-1b3c",)),
        ("MODEL_DIR", "/a//b/../c/", "/a/c"),
        ("CACHE_DIR", "dsv41-cache", "dsv41-cache"),
        ("EXTRA_ARGS", "--seed 1 'a b'", ("--seed", "1", "a b")),
        ("EXTRA_ARGS", "", ()),
        ("IMAGE", "registry.example:5000/moet/dsv41:vllm0.33.0-r1", "registry.example:5000/moet/dsv41:vllm0.33.0-r1"),
        ("IMAGE", f"dsv41@sha256:{'0' * 64}", f"dsv41@sha256:{'0' * 64}"),
        ("SERVED_MODEL_NAME", " any text\n", " any text\n"),
    ],
)
def test_text_is_read_as_the_kind_says(name: str, text: str, value: Value) -> None:
    found = values.parse(KNOBS[name], text)
    assert found == value and type(found) is type(value)
    assert values.parse(KNOBS[name], values.show_of(KNOBS[name], found)) == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("MAX_NUM_SEQS", "0", "expected an integer from 1 to 256 (requests)"),
        ("MAX_NUM_SEQS", "8.0", "expected an integer from 1 to 256 (requests)"),
        ("MAX_NUM_SEQS", "\u0668", "expected an integer from 1 to 256 (requests)"),
        ("GPU_MEM_UTIL", "1.5", "expected a number from 0.5 to 0.98 (of the GPU's memory)"),
        ("GPU_MEM_UTIL", "nan", "expected a number from 0.5 to 0.98 (of the GPU's memory)"),
        ("GPU_MEM_UTIL", "1e-1", "expected a number from 0.5 to 0.98 (of the GPU's memory)"),
        ("TP", "3", "expected one of 1, 2, 4, 8"),
        ("LANGUAGE_ONLY", "maybe", "expected 0 or 1"),
        ("INDEXER_KV_DTYPE", "bf16", "expected one of fp8, mxfp4"),
        ("VLLM_MOET_MOE_BLOCK_M", "1", "expected 0 (upstream's path) or 64"),
        ("BIND", "localhost", "expected an IP address, for example 127.0.0.1 or ::1"),
        ("GPUS", "0,0", "expected each GPU once"),
        ("GPUS", "0,", "expected GPUs by index or UUID with commas between them, for example 0,1"),
        ("MODEL_DIR", "models/x", "expected an absolute path, and not /"),
        ("MODEL_DIR", "/../..", "expected an absolute path, and not /"),
        ("MODEL_DIR", "/a\0b", "expected text without NUL characters"),
        ("CACHE_DIR", "../x", "expected an absolute path, or a volume's name of small letters, digits, . and -"),
        ("EXTRA_ARGS", "'", "cannot be split into words as a shell does: no closing quotation"),
        ("IMAGE", "dsv41", "expected an image with a tag or digest, for example dsv41:vllm0.33.0-r1"),
        ("IMAGE", "--privileged:x", "expected an image with a tag or digest, for example dsv41:vllm0.33.0-r1"),
        ("NAME", "-x", "expected up to 42 small letters, digits and -, a letter first"),
    ],
)
def test_what_a_knob_does_not_take(name: str, text: str, expected: str) -> None:
    with pytest.raises(values.ValueProblemError) as error:
        values.parse(KNOBS[name], text)
    assert str(error.value) == expected


def test_refused_value_has_its_reason() -> None:
    knob = Knob("X", "choice", "x", choices=("a",), refused={"b": "there is no b"})
    with pytest.raises(values.ValueProblemError, match="is refused: there is no b"):
        values.parse(knob, "b")
