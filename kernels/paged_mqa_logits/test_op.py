"""What can be seen of the operators without a GPU: that they load, are registered, and say what they cannot take."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.paged_mqa_logits.op import (
    HEAD_DIM,
    HEADS,
    MOST_NEXT_N,
    PAGE_SIZES,
    paged_mqa_logits,
    paged_mqa_logits_metadata,
)

Arguments = dict[str, Any]
Change = Callable[[], Arguments]


def byte(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


def fp8(*shape: int) -> torch.Tensor:
    return byte(*shape).view(torch.float8_e4m3fn)


def number(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float32)


def integer(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def of_fp8() -> Arguments:
    return {
        "q": fp8(3, 2, 32, 128),
        "q_scale": None,
        "kv_cache": byte(5, 64, 1, 132),
        "weights": number(6, 32),
        "context_lens": integer(3, 2),
        "block_tables": integer(3, 4),
        "schedule_metadata": integer(133, 2),
        "max_model_len": 256,
        "out": number(6, 256),
    }


def of_mxfp4() -> Arguments:
    return of_fp8() | {
        "q": byte(3, 2, 32, 64).view(torch.int8),
        "q_scale": integer(3, 2, 32),
        "kv_cache": byte(5, 64, 1, 68),
    }


def strided(stride: int) -> torch.Tensor:
    return byte(6 * stride).as_strided((5, 64, 1, 132), (stride, 132, 132, 1))


FP8: list[tuple[str, Change]] = [
    ("q: dtype is uint8; expected float8_e4m3fn", lambda: {"q": byte(3, 2, 32, 128)}),
    ("q: shape is [6, 32, 128]; expected 4 dimensions", lambda: {"q": fp8(6, 32, 128)}),
    ("q: shape is [0, 2, 32, 128]; expected dimension 0 to be 1 to", lambda: {"q": fp8(0, 2, 32, 128)}),
    ("q: shape is [3, 0, 32, 128]; expected dimension 1 to be 1 to 8", lambda: {"q": fp8(3, 0, 32, 128)}),
    ("q: shape is [3, 9, 32, 128]; expected dimension 1 to be 1 to 8", lambda: {"q": fp8(3, 9, 32, 128)}),
    ("q: shape is [3, 2, 64, 128]; expected dimension 2 to be 32, heads", lambda: {"q": fp8(3, 2, 64, 128)}),
    (
        "q: shape is [3, 2, 32, 64]; expected dimension 3 to be 128, as q_scale is absent",
        lambda: {"q": fp8(3, 2, 32, 64)},
    ),
    ("q: strides are [16384, 8192, 256, 1] for", lambda: {"q": fp8(3, 2, 32, 256)[..., :128]}),
    ("q: data begins at an address that is no", lambda: {"q": fp8(3 * 8192 + 1)[1:].view(3, 2, 32, 128)}),
    ("kv_cache: dtype is float8_e4m3fn; expected uint8", lambda: {"kv_cache": fp8(5, 64, 1, 132)}),
    ("kv_cache: shape is [5, 64, 132]; expected 4 dimensions", lambda: {"kv_cache": byte(5, 64, 132)}),
    (
        "kv_cache: shape is [5, 256, 1, 132]; expected dimension 1 to be one of 32, 64, 128",
        lambda: {"kv_cache": byte(5, 256, 1, 132)},
    ),
    ("kv_cache: shape is [5, 64, 2, 132]; expected dimension 2", lambda: {"kv_cache": byte(5, 64, 2, 132)}),
    (
        "kv_cache: shape is [5, 64, 1, 68]; expected dimension 3 to be 132, of E4M3, as q is",
        lambda: {"kv_cache": byte(5, 64, 1, 68)},
    ),
    (
        "kv_cache: strides are [8456, 132, 132, 1]; expected pages of 8448 bytes without gaps, a multiple of 16",
        lambda: {"kv_cache": strided(8456)},
    ),
    ("kv_cache: strides are [8432, 132, 132, 1]; expected pages", lambda: {"kv_cache": strided(8432)}),
    ("kv_cache: strides are [9216, 144, 144, 1]; expected", lambda: {"kv_cache": byte(5, 64, 1, 144)[..., :132]}),
    ("kv_cache: data begins at", lambda: {"kv_cache": byte(5 * 8448 + 8)[8:].view(5, 64, 1, 132)}),
    ("weights: dtype is bfloat16; expected float32", lambda: {"weights": number(6, 32).bfloat16()}),
    ("weights: shape is [3, 32]; expected dimension 0 to be 6, as q has rows", lambda: {"weights": number(3, 32)}),
    ("weights: shape is [6, 64]; expected dimension 1 to be 32, heads", lambda: {"weights": number(6, 64)}),
    ("weights: strides are [64, 1] for", lambda: {"weights": number(6, 64)[:, :32]}),
    ("context_lens: dtype is int64; expected int32", lambda: {"context_lens": integer(3, 2).long()}),
    ("context_lens: shape is [2, 2]; expected dimension 0 to be 3", lambda: {"context_lens": integer(2, 2)}),
    (
        "context_lens: shape is [3, 3]; expected dimension 1 to be 2, as q has rows a request",
        lambda: {"context_lens": integer(3, 3)},
    ),
    ("context_lens: shape is [3, 2, 1]; expected 2 dimensions", lambda: {"context_lens": integer(3, 2, 1)}),
    ("context_lens: strides are [4, 1] for", lambda: {"context_lens": integer(3, 4)[:, :2]}),
    ("block_tables: dtype is int64; expected int32", lambda: {"block_tables": integer(3, 4).long()}),
    ("block_tables: shape is [6, 4]; expected dimension 0 to be 3", lambda: {"block_tables": integer(6, 4)}),
    ("block_tables: shape is [3, 0]; expected dimension 1 to be 1 to", lambda: {"block_tables": integer(3, 0)}),
    ("block_tables: strides are [1, 3]; expected the last", lambda: {"block_tables": integer(4, 3).t()}),
    ("schedule_metadata: dtype is int64; expected", lambda: {"schedule_metadata": integer(133, 2).long()}),
    (
        "schedule_metadata: shape is [1, 2]; expected dimension 0 to be 2 to 65536",
        lambda: {"schedule_metadata": integer(1, 2)},
    ),
    (
        "schedule_metadata: shape is [133, 3]; expected dimension 1 to be 2, request and unit",
        lambda: {"schedule_metadata": integer(133, 3)},
    ),
    ("schedule_metadata: strides are [4, 1] for", lambda: {"schedule_metadata": integer(133, 4)[:, :2]}),
    ("max_model_len: is 0; expected 1 to 268435456", lambda: {"max_model_len": 0, "out": number(6, 0)}),
    ("out: dtype is bfloat16; expected float32", lambda: {"out": number(6, 256).bfloat16()}),
    ("out: shape is [3, 256]; expected dimension 0 to be 6, as q has rows", lambda: {"out": number(3, 256)}),
    ("out: shape is [6, 255]; expected dimension 1 to be 256, as max_model_len is", lambda: {"out": number(6, 255)}),
    ("out: strides are [1, 6]; expected the last to be 1", lambda: {"out": number(256, 6).t()}),
    ("q: is not on a CUDA device; expected one", dict),
    ("q: is not on a CUDA device; expected one", lambda: {"context_lens": integer(3)}),
    ("q: is not on a CUDA device; expected one", lambda: {"context_lens": integer(3, 1)}),
    ("q: is not on a CUDA device; expected one", lambda: {"kv_cache": strided(8464)}),
    ("q: is not on a CUDA device; expected one", lambda: {"out": number(6, 300)[:, :256]}),
    ("q: is not on a CUDA device; expected one", lambda: {"block_tables": integer(3, 9)[:, :4]}),
]
MXFP4: list[tuple[str, Change]] = [
    ("q: dtype is float8_e4m3fn; expected int8 or uint8", lambda: {"q": fp8(3, 2, 32, 64)}),
    (
        "q: shape is [3, 2, 32, 128]; expected dimension 3 to be 64, pairs of E2M1, as q_scale is there",
        lambda: {"q": byte(3, 2, 32, 128)},
    ),
    ("q_scale: dtype is uint8; expected int32", lambda: {"q_scale": byte(3, 2, 32)}),
    ("q_scale: shape is [3, 2, 32, 1]; expected 3 dimensions", lambda: {"q_scale": integer(3, 2, 32, 1)}),
    ("q_scale: shape is [2, 2, 32]; expected dimension 0 to be 3", lambda: {"q_scale": integer(2, 2, 32)}),
    ("q_scale: shape is [3, 1, 32]; expected dimension 1 to be 2", lambda: {"q_scale": integer(3, 1, 32)}),
    ("q_scale: shape is [3, 2, 4]; expected dimension 2 to be 32", lambda: {"q_scale": integer(3, 2, 4)}),
    ("q_scale: strides are [128, 64, 2] for", lambda: {"q_scale": integer(3, 2, 32, 2)[..., 0]}),
    (
        "kv_cache: shape is [5, 64, 1, 132]; expected dimension 3 to be 68, of E2M1, as q is",
        lambda: {"kv_cache": byte(5, 64, 1, 132)},
    ),
    ("q: is not on a CUDA device; expected one", dict),
    ("q: is not on a CUDA device; expected one", lambda: {"q": byte(3, 2, 32, 64)}),
]
METADATA: list[tuple[str, Change]] = [
    ("context_lens: dtype is int64; expected int32", lambda: {"context_lens": integer(3, 2).long()}),
    ("context_lens: shape is [0]; expected dimension 0 to be 1 to", lambda: {"context_lens": integer(0)}),
    ("context_lens: shape is [3, 9]; expected dimension 1 to be 1 to 8", lambda: {"context_lens": integer(3, 9)}),
    ("context_lens: strides are [1, 3] for", lambda: {"context_lens": integer(2, 3).t()}),
    ("block_size: is 256; expected one of 32, 64, 128", lambda: {"block_size": 256}),
    ("out: dtype is int64; expected int32", lambda: {"out": integer(133, 2).long()}),
    ("out: shape is [133]; expected 2 dimensions", lambda: {"out": integer(133)}),
    ("out: strides are [1, 133] for", lambda: {"out": integer(2, 133).t()}),
    ("context_lens: is not on a CUDA device; expected one", dict),
]


def refusal(op: Callable[..., None], arguments: Arguments) -> str:
    with pytest.raises(RuntimeError) as caught:
        op(*arguments.values())
    return str(caught.value)


@pytest.mark.parametrize(("message", "change"), FP8, ids=[f"{i}-{m[:30]}" for i, (m, _) in enumerate(FP8)])
def test_misuse_of_fp8(message: str, change: Change) -> None:
    assert refusal(torch.ops.moet.paged_mqa_logits, of_fp8() | change()).startswith(f"paged_mqa_logits: {message}")


@pytest.mark.parametrize(("message", "change"), MXFP4, ids=[f"{i}-{m[:30]}" for i, (m, _) in enumerate(MXFP4)])
def test_misuse_of_mxfp4(message: str, change: Change) -> None:
    assert refusal(torch.ops.moet.paged_mqa_logits, of_mxfp4() | change()).startswith(f"paged_mqa_logits: {message}")


@pytest.mark.parametrize(("message", "change"), METADATA, ids=[message for message, _ in METADATA])
def test_misuse_of_metadata(message: str, change: Change) -> None:
    arguments = {"context_lens": integer(3, 2), "block_size": 64, "out": integer(133, 2)}
    said = refusal(torch.ops.moet.paged_mqa_logits_metadata, arguments | change())
    assert said.startswith(f"paged_mqa_logits_metadata: {message}")


def test_slots_and_out_of_metadata_fit_each_other() -> None:
    with pytest.raises(RuntimeError, match=r"metadata: num_slots: is 0; expected 1 to 65535"):
        paged_mqa_logits_metadata(integer(3), 64, 0)
    with pytest.raises(RuntimeError, match=r"metadata: out: shape is \[133, 2\]; expected \[189, 2\], for num_slots"):
        paged_mqa_logits_metadata(integer(3), 64, 188, out=integer(133, 2))


def test_schema() -> None:
    assert str(torch.ops.moet.paged_mqa_logits.default._schema) == (
        "moet::paged_mqa_logits(Tensor q, Tensor? q_scale, Tensor kv_cache, Tensor weights, Tensor context_lens, "
        "Tensor block_tables, Tensor schedule_metadata, int max_model_len, Tensor(a!) out, bool dependent=False) -> ()"
    )
    assert str(torch.ops.moet.paged_mqa_logits_metadata.default._schema) == (
        "moet::paged_mqa_logits_metadata(Tensor context_lens, int block_size, Tensor(a!) out, "
        "bool dependent=False) -> ()"
    )


def test_constants_are_those_of_the_operators() -> None:
    assert (PAGE_SIZES, HEADS, HEAD_DIM, MOST_NEXT_N) == ((32, 64, 128), 32, 128, 8)
    for page in PAGE_SIZES:
        most = {"q": fp8(1, MOST_NEXT_N, HEADS, HEAD_DIM), "kv_cache": byte(1, page, 1, HEAD_DIM + 4)}
        rest = {"weights": number(MOST_NEXT_N, HEADS), "context_lens": integer(1), "block_tables": integer(1, 1)}
        said = refusal(torch.ops.moet.paged_mqa_logits, of_fp8() | most | rest | {"out": number(MOST_NEXT_N, 256)})
        assert said.startswith("paged_mqa_logits: q: is not on a CUDA device")


@pytest.mark.parametrize("make", [of_fp8, of_mxfp4])
def test_meta(make: Callable[[], Arguments]) -> None:
    arguments = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in make().items() if k != "out"}
    result = paged_mqa_logits(**(arguments | {"max_model_len": 250}))
    assert (tuple(result.shape), result.stride(), result.dtype) == ((6, 250), (256, 1), torch.float32)
    schedule = paged_mqa_logits_metadata(arguments["context_lens"], 64, 188)
    assert (tuple(schedule.shape), schedule.dtype, schedule.device.type) == ((189, 2), torch.int32, "meta")
