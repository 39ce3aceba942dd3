"""What can be seen of the operator without a GPU: that it loads, is registered, and says what it cannot take."""

from collections.abc import Callable

import pytest
import torch

from kernels.moe_front.op import MoeFront, empty, moe_front, rows

M, E, K = 3, 64, 1024
R = 1152  # 18 experts at most, each padded to 64

Values = dict[str, torch.Tensor | int | float | None]
NAMES = (
    "logits", "bias", "x", "is_padding", "token_ids", "image_bias", "a", "a_scale", "m_indices", "inv_perm",
    "topk_weights", "topk_ids", "alignment", "group", "scaling_factor", "image_first",
)  # fmt: skip


def f32(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.float32)


def i32(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def fp8(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8).view(torch.float8_e4m3fn)


def arguments() -> Values:
    return {
        "logits": f32(M, E),
        "bias": f32(E),
        "x": bf16(M, K),
        "is_padding": None,
        "token_ids": None,
        "image_bias": None,
        "a": fp8(R, K),
        "a_scale": i32(K // 512, R).t(),
        "m_indices": i32(R),
        "inv_perm": i32(M, 6),
        "topk_weights": f32(M, 6),
        "topk_ids": i32(M, 6),
        "alignment": 64,
        "group": 128,
        "scaling_factor": 1.0,
        "image_first": 0,
    }


def image() -> Values:
    return {"token_ids": i32(M), "image_bias": f32(E)}


MISUSES: list[tuple[str, Callable[[], Values]]] = [
    ("logits: dtype is bfloat16; expected float32", lambda: {"logits": bf16(M, E)}),
    ("logits: shape is [192]; expected 2 dimensions", lambda: {"logits": f32(M * E)}),
    ("logits: shape is [0, 64]; expected dimension 0 to be 1 to 64", lambda: {"logits": f32(0, E)}),
    ("logits: shape is [65, 64]; expected dimension 0 to be 1 to 64", lambda: {"logits": f32(65, E)}),
    ("logits: shape is [3, 416]; expected dimension 1 to be 32 to 384", lambda: {"logits": f32(M, 416)}),
    ("logits: shape is [3, 72]; expected dimension 1 to be a multiple of 32", lambda: {"logits": f32(M, 72)}),
    ("logits: strides are [1, 3] for shape [3, 64]; expected a contiguous", lambda: {"logits": f32(E, M).t()}),
    ("bias: dtype is bfloat16; expected float32", lambda: {"bias": bf16(E)}),
    ("bias: shape is [1, 64]; expected 1 dimensions", lambda: {"bias": f32(1, E)}),
    ("bias: shape is [63]; expected dimension 0 to be 64, as logits has experts", lambda: {"bias": f32(63)}),
    ("bias: strides are [2] for shape [64]; expected a contiguous", lambda: {"bias": f32(2 * E)[::2]}),
    ("x: dtype is float32; expected bfloat16", lambda: {"x": f32(M, K)}),
    ("x: shape is [3, 1, 1024]; expected 2 dimensions", lambda: {"x": bf16(M, 1, K)}),
    ("x: shape is [4, 1024]; expected dimension 0 to be 3, as logits has", lambda: {"x": bf16(4, K)}),
    ("x: shape is [3, 8704]; expected dimension 1 to be 512 to 8192", lambda: {"x": bf16(M, 8704)}),
    ("x: shape is [3, 1056]; expected dimension 1 to be a multiple of 512", lambda: {"x": bf16(M, 1056)}),
    ("x: strides are [2048, 1] for shape [3, 1024]; expected a cont", lambda: {"x": bf16(M, 2 * K)[:, :K]}),
    ("x: data begins at an address that is no multiple of 16", lambda: {"x": bf16(M * K + 1)[1:].view(M, K)}),
    ("is_padding: dtype is uint8; expected bool", lambda: {"is_padding": torch.zeros(M, dtype=torch.uint8)}),
    (
        "is_padding: shape is [4]; expected dimension 0 to be 3",
        lambda: {"is_padding": torch.zeros(4, dtype=torch.bool)},
    ),
    ("image_bias: is absent; expected one, as there are token_ids", lambda: {"token_ids": i32(M)}),
    ("token_ids: are absent; expected some, as there is an image_bias", lambda: {"image_bias": f32(E)}),
    ("image_first: is 7; expected 0, as there are no token_ids", lambda: {"image_first": 7}),
    ("image_first: is -7; expected a token id, or 0", lambda: image() | {"image_first": -7}),
    ("token_ids: dtype is float32; expected int32 or int64", lambda: image() | {"token_ids": f32(M)}),
    ("token_ids: shape is [2]; expected dimension 0 to be 3", lambda: image() | {"token_ids": i32(2)}),
    ("image_bias: dtype is int32; expected float32", lambda: image() | {"image_bias": i32(E)}),
    ("image_bias: shape is [32]; expected dimension 0 to be 64", lambda: image() | {"image_bias": f32(32)}),
    ("a: dtype is uint8; expected float8_e4m3fn", lambda: {"a": torch.zeros(R, K, dtype=torch.uint8)}),
    (
        "a: shape is [1151, 1024]; expected dimension 0 to be 1152, for these tokens, experts and alignment",
        lambda: {"a": fp8(R - 1, K)},
    ),
    ("a: shape is [1152, 512]; expected dimension 1 to be 1024, as x has", lambda: {"a": fp8(R, 512)}),
    ("a: strides are [2048, 1] for shape [1152, 1024]; expected a cont", lambda: {"a": fp8(R, 2 * K)[:, :K]}),
    ("a: data begins at an address that is no multiple of 16", lambda: {"a": fp8(R * K + 1)[1:].view(R, K)}),
    ("a: shape is [1152, 1024]; expected dimension 0 to be 2304", lambda: {"alignment": 128}),
    ("a_scale: dtype is float32; expected int32", lambda: {"a_scale": f32(2, R).t()}),
    ("a_scale: shape is [1152, 8]; expected dimension 1 to be 2", lambda: {"a_scale": i32(8, R).t()}),
    ("a_scale: shape is [1152, 2]; expected dimension 1 to be 8, words of four", lambda: {"group": 32}),
    ("a_scale: strides are [2, 1]; expected [1, 1152]", lambda: {"a_scale": i32(R, 2)}),
    ("a_scale: strides are [1, 1156]; expected [1, 1152]", lambda: {"a_scale": i32(2, R + 4)[:, :R].t()}),
    ("m_indices: dtype is int64; expected int32", lambda: {"m_indices": i32(R).long()}),
    ("m_indices: shape is [64]; expected dimension 0 to be 1152, as a has", lambda: {"m_indices": i32(64)}),
    ("m_indices: data begins at", lambda: {"m_indices": i32(R + 1)[1:]}),
    ("inv_perm: dtype is int64; expected int32", lambda: {"inv_perm": i32(M, 6).long()}),
    ("inv_perm: shape is [3, 8]; expected dimension 1 to be 6, experts a token", lambda: {"inv_perm": i32(M, 8)}),
    ("topk_weights: dtype is bfloat16; expected float32", lambda: {"topk_weights": bf16(M, 6)}),
    ("topk_ids: shape is [2, 6]; expected dimension 0 to be 3, as logits has", lambda: {"topk_ids": i32(2, 6)}),
    ("topk_ids: strides are [1, 3] for shape [3, 6]; expected a cont", lambda: {"topk_ids": i32(6, M).t()}),
    ("alignment: is 96; expected 64 or 128", lambda: {"alignment": 96}),
    ("group: is 64; expected 32 or 128", lambda: {"group": 64}),
    ("logits: is not on a CUDA device; expected one", dict),
]


@pytest.mark.parametrize(("message", "change"), MISUSES, ids=[message for message, _ in MISUSES])
def test_misuse(message: str, change: Callable[[], Values]) -> None:
    values = arguments() | change()
    with pytest.raises(RuntimeError) as caught:
        torch.ops.moet.moe_front(*[values[name] for name in NAMES])
    assert str(caught.value).startswith(f"moe_front: {message}")


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_everything_at_once_is_taken(ids: torch.dtype) -> None:
    more = {"is_padding": torch.zeros(M, dtype=torch.bool), "image_first": 5, "image_bias": f32(E)}
    values = arguments() | more | {"token_ids": torch.zeros(M, dtype=ids)}
    with pytest.raises(RuntimeError, match="moe_front: logits: is not on a CUDA device; expected one"):
        torch.ops.moet.moe_front(*[values[name] for name in NAMES])


def test_schema() -> None:
    assert str(torch.ops.moet.moe_front.default._schema) == (
        "moet::moe_front(Tensor logits, Tensor bias, Tensor x, Tensor? is_padding, Tensor? token_ids, "
        "Tensor? image_bias, Tensor(a!) a, Tensor(b!) a_scale, Tensor(c!) m_indices, Tensor(d!) inv_perm, "
        "Tensor(e!) topk_weights, Tensor(f!) topk_ids, int alignment, int group, float scaling_factor, "
        "int image_first, bool dependent=False) -> ()"
    )


@pytest.mark.parametrize(("alignment", "group", "r", "words"), [(64, 128, 2304, 10), (128, 32, 4608, 40)])
def test_meta(alignment: int, group: int, r: int, words: int) -> None:
    logits, bias, x = f32(6, 384).to("meta"), f32(384).to("meta"), bf16(6, 5120).to("meta")
    result = moe_front(logits, bias, x, alignment=alignment, group=group)
    assert [(tuple(t.shape), t.dtype) for t in result] == [
        ((r, 5120), torch.float8_e4m3fn),
        ((r, words), torch.int32),
        ((r,), torch.int32),
        ((6, 6), torch.int32),
        ((6, 6), torch.float32),
        ((6, 6), torch.int32),
    ]
    assert result.a_scale.stride() == (1, r) and result.a.device.type == "meta"


def test_meta_refuses_other_shapes() -> None:
    logits, bias, x = f32(6, 384).to("meta"), f32(384).to("meta"), bf16(6, 5120).to("meta")
    out = empty(x, 384, 64)
    with pytest.raises(RuntimeError, match=r"moe_front: a: expected \[R, K\]"):
        moe_front(logits, bias, x, alignment=128, out=out)
    with pytest.raises(RuntimeError, match=r"moe_front: topk_ids: expected \[M, 6\]"):
        moe_front(logits, bias, x, alignment=64, out=MoeFront(*out[:-1], i32(6, 8).to("meta")))


@pytest.mark.parametrize(("tokens", "experts", "alignment", "expected"), [(1, 384, 64, 384), (64, 256, 128, 32896)])
def test_rows(tokens: int, experts: int, alignment: int, expected: int) -> None:
    assert rows(tokens, experts, alignment) == expected
