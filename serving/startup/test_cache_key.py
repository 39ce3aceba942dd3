import json

import pytest

from images.engine.interface import EngineImage
from serving.preflight.host import Host
from serving.preflight.programs import Done
from serving.startup import cache_key, made_up
from serving.startup.cache_key import CacheKey

CARD = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
GPUS = (CARD,) * 4


def key(*given: str, image: str = "a", gpus: tuple[str, ...] = GPUS) -> CacheKey:
    held = EngineImage(f"sha256:{image * 64}", (), (), {})
    return CacheKey.of(made_up.launch(*given), held, gpus)


@pytest.mark.parametrize(
    "given",
    [
        "GPU_MEM_UTIL=0.92",
        "BIND=::1",
        "PORT=9000",
        "NAME=other",
        "SERVED_MODEL_NAME=other",
        "CACHE_DIR=/elsewhere",
        "NCCL_P2P_LEVEL=PHB",
        "VLLM_MOET_SELFTEST=1",
        "GPUS=3,2,1,0",
    ],
)
def test_settings_that_change_no_cache(given: str) -> None:
    assert cache_key.differs(key(), key(given)) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("MAX_NUM_SEQS=16", "--max-num-seqs: 8 -> 16"),
        # vLLM has it in the hash, though nothing that is compiled depends on it (config/cache.py:405-433).
        ("KV_OFFLOAD_GIB=64", "--kv-offloading-size: not set -> 64"),
        ("LANGUAGE_ONLY=1", "--language-model-only: not set -> on"),
        ("VLLM_MOET_MXFP8_GEMV=1", "VLLM_MOET_MXFP8_GEMV: not set -> 1"),
        ("EXTRA_ARGS=--seed -1 --x=y", "--seed: not set -> -1"),
        ("SPEC_TOKENS=0", "--speculative-config: {"),
    ],
)
def test_settings_that_change_the_caches_are_named(given: str, said: str) -> None:
    lines = cache_key.differs(key(), key(given))
    assert any(line.startswith(said) for line in lines), lines


def test_image_and_gpus_are_named() -> None:
    assert cache_key.differs(key(), key(image="b", gpus=GPUS[:2])) == [
        "image: dsv41:vllm0.33.0-r1 (aaaaaaaaaaaa) -> dsv41:vllm0.33.0-r1 (bbbbbbbbbbbb)",
        f"GPUs: 4 x {CARD} -> 2 x {CARD}",
    ]
    assert cache_key.differs(key(gpus=()), key()) == [f"GPUs: unknown -> 4 x {CARD}"]


def test_a_folder_remembers_several_configurations() -> None:
    container = made_up.Container()
    assert cache_key.why(cache_key.read(container), key()) == ["CACHE_DIR was not filled by a server that became ready"]
    cache_key.write(container, key())
    cache_key.write(container, key("SPEC_TOKENS=7", "MAX_NUM_SEQS=4"))
    filled = cache_key.read(container)
    assert cache_key.why(filled, key("GPU_MEM_UTIL=0.9")) == []
    assert cache_key.why(filled, key("SPEC_TOKENS=7", "MAX_NUM_SEQS=4")) == []
    # The nearest of them says why.
    assert cache_key.why(filled, key("MAX_NUM_SEQS=5")) == ["--max-num-seqs: 8 -> 5"]
    cache_key.write(container, key())
    assert len(cache_key.read(container)) == 2 and cache_key.read(container)[-1] == key()


def test_oldest_are_forgotten() -> None:
    container = made_up.Container()
    keys = [key(f"MAX_NUM_SEQS={number}") for number in range(1, 21)]
    for one in keys:
        cache_key.write(container, one)
    assert cache_key.read(container) == tuple(keys[-16:])


@pytest.mark.parametrize("change", ["schema", "gpus", "cut", "binary", "nested"])
def test_damaged_file_counts_as_none_and_is_replaced(change: str) -> None:
    container = made_up.Container()
    cache_key.write(container, key())
    data = container.files[cache_key.PATH]
    document = json.loads(data)
    if change == "schema":
        document["schema"] = "moet.cache.v2"
    if change == "gpus":
        document["filled"][0]["gpus"] = CARD
    broken = {"cut": data[:50], "binary": b"\xff\0", "nested": b"[" * 100_000}
    container.files[cache_key.PATH] = broken.get(change, json.dumps(document).encode())
    assert cache_key.read(container) == ()
    cache_key.write(container, key())
    assert cache_key.read(container) == (key(),)


def host(output: str, status: int = 0) -> Host:
    return Host(run=lambda words: Done(status, output, ""))


def test_models_of_the_gpus_that_a_launch_is_given() -> None:
    rows = "".join(f"{number}, GPU-0000000{number}, {'abcd'[number]}, 12.0, 97887, 4, 580.1\n" for number in range(4))
    assert cache_key.gpu_models(made_up.launch("TP=2"), host(rows)) == ("a", "b")
    assert cache_key.gpu_models(made_up.launch("TP=2", "GPUS=3,GPU-00000000"), host(rows)) == ("a", "d")
    assert cache_key.gpu_models(made_up.launch("TP=8"), host(rows)) == ()
    assert cache_key.gpu_models(made_up.launch("TP=2"), host("no devices", 6)) == ()


def test_no_key_is_kept() -> None:
    assert "VLLM_API_KEY" not in key().settings
