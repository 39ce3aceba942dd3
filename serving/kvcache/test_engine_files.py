"""Names and config.json; patches/vllm-0.33.0/tests/test_kvcache.py holds the same functions against vLLM's own."""

import json
from pathlib import Path

import pytest

from serving.kvcache import engine_files
from serving.kvcache.engine_files import Config, Kind
from serving.kvcache.fake_tier import FakeTier

HASH = "abcde" + "0" * 59
BLOCK = f"{HASH}.bin"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (BLOCK, Kind.BLOCK),
        ("abcdef.bin", Kind.BLOCK),
        (f"{BLOCK}_0.tmp", Kind.TEMPORARY),
        (f"{BLOCK}_9223372036854775807.tmp", Kind.TEMPORARY),
        (f"{BLOCK}\n", None),
        (f"\n{BLOCK}", None),
        (f"{BLOCK}_.tmp", None),
        (f"{BLOCK}_-1.tmp", None),
        (f"{BLOCK}_1.tmp.tmp", None),
        (f"{BLOCK}_\u0661.tmp", None),
        (f"{BLOCK}.bak", None),
        (f".{BLOCK}", None),
        (f"0{HASH[1:]}.bin", None),
        (f"{HASH[:-1]}.bin", None),
        (f"{HASH[:-1]}G.bin", None),
        (f"{HASH.upper()}.bin", None),
        (HASH, None),
        (".bin", None),
        ("abcd.bin", None),
        ("", None),
        ("..", None),
    ],
)
def test_only_the_engines_names_are_its_files(name: str, kind: Kind | None) -> None:
    assert engine_files.kind_of("abc", "de_g0", name) is kind


@pytest.mark.parametrize("second", ["de", "de_g", "de_g-1", "df_g0", "DE_g0", "de_g0\n", "de_g0_g1"])
def test_a_block_lies_below_the_digits_of_its_hash(second: str) -> None:
    assert engine_files.kind_of("abc", second, BLOCK) is None


def test_base_names() -> None:
    assert engine_files.base_of("_model_0123456789ab") == "_model_0123456789ab"
    assert engine_files.base_of("_model_0123456789ab_r12") == "_model_0123456789ab"
    assert engine_files.base_of("a\nb_0123456789ab_r0") == "a\nb_0123456789ab"
    for name in ("_model", "_model_0123456789AB", "_model_0123456789ab_r", "_model_0123456789ab_rx", "0123456789ab"):
        assert engine_files.base_of(name) is None


def test_config_says_what_the_blocks_are(tmp_path: Path) -> None:
    tier = FakeTier(tmp_path)
    config = engine_files.config_of(tier.base, json.dumps(tier.fields).encode())
    assert config == Config("/model", "fp8_ds_mla", None, (128,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is not vLLM's: expected the JSON object"),
        (b'{"model_name": "/mod', "is not vLLM's"),
        (b"[]", "is not vLLM's"),
        (b"\xff\xfe", "is not vLLM's"),
        (b"[" * 100_000, "is not vLLM's"),
        (b'{"model_name": "/model"}', "is not vLLM's"),
        (json.dumps(FakeTier(Path(), dtype="nvfp4").fields).encode(), "belongs to another folder: its fields make"),
        (json.dumps(FakeTier(Path(), model="other").fields).encode(), "belongs to another folder: .* other_"),
    ],
)
def test_config_that_is_not_this_folders(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        engine_files.config_of(FakeTier(Path()).base, text)
