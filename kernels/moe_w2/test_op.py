"""What can be seen of the operator without a GPU: that it loads, is registered, and says what it cannot take."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels.moe_w2.op import MOST_K, MOST_ROWS, MOST_TOP, UNIT_K, UNIT_N, Slots, moe_w2

Tensors = dict[str, torch.Tensor | None]
Change = Callable[[], Tensors]

# Three rows of two experts each; three slots of two matrices [32, 128], and of their deltas two.
M, TOP, N, K, PARTS, SLOTS, DELTAS, EXPERTS = 3, 2, 32, 128, 2, 3, 2, 5


def bytes_of(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


def fp8(*shape: int) -> torch.Tensor:
    return bytes_of(*shape).view(torch.float8_e4m3fn)


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def out(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def shifted(flat: torch.Tensor, *shape: int) -> torch.Tensor:
    return flat[1:].view(*shape)


def arguments() -> Tensors:
    return {
        "x": fp8(M, K),
        "x_scale": bytes_of(M, K // 32),
        "topk_ids": ints(M, TOP),
        "planes": bytes_of(SLOTS, PARTS, N * K // 4),
        "scales": bytes_of(SLOTS, PARTS, N * K // 32),
        "table": ints(EXPERTS),
        "delta_planes": bytes_of(DELTAS, PARTS, N * K // 2),
        "delta_scales": bytes_of(DELTAS, PARTS, N * K // 32),
        "delta_table": ints(EXPERTS),
        "out": out(M, TOP, PARTS * N),
        "missing": ints(1),
    }


MISUSES: list[tuple[str, Change]] = [
    ("topk_ids: dtype is int64; expected int32", lambda: {"topk_ids": ints(M, TOP).long()}),
    ("topk_ids: shape is [6]; expected 2 dimensions", lambda: {"topk_ids": ints(6)}),
    ("topk_ids: shape is [0, 2]; expected dimension 0 to be 1 to 16", lambda: {"topk_ids": ints(0, TOP)}),
    ("topk_ids: shape is [17, 2]; expected dimension 0 to be 1 to 16", lambda: {"topk_ids": ints(17, TOP)}),
    ("topk_ids: shape is [3, 9]; expected dimension 1 to be 1 to 8", lambda: {"topk_ids": ints(M, 9)}),
    ("topk_ids: strides are [1, 3] for shape [3, 2]; expected a c", lambda: {"topk_ids": ints(TOP, M).t()}),
    ("x: dtype is bfloat16; expected float8_e4m3fn", lambda: {"x": out(M, K)}),
    ("x: shape is [128]; expected 2 dimensions", lambda: {"x": fp8(K)}),
    ("x: shape is [2, 128]; expected dimension 0 to be 3, as topk_ids has", lambda: {"x": fp8(2, K)}),
    ("x: shape is [3, 3, 128]; expected dimension 1 to be 2, as topk_ids has", lambda: {"x": fp8(M, 3, K)}),
    ("x: shape is [3, 7232]; expected dimension 1 to be 64 to 7168", lambda: {"x": fp8(M, 7232)}),
    ("x: shape is [3, 96]; expected dimension 1 to be a multiple of 64", lambda: {"x": fp8(M, 96)}),
    ("x: strides are [1, 3]; expected the last to be 1", lambda: {"x": fp8(K, M).t()}),
    ("x: strides are [136, 1]; expected dimension 0's to be at least 128 and a", lambda: {"x": fp8(M, 136)[:, :K]}),
    ("x: data begins at an address that is no multiple of 16", lambda: {"x": shifted(fp8(M * K + 1), M, K)}),
    ("x_scale: dtype is float32; expected uint8 or float8_e8m0fnu", lambda: {"x_scale": bytes_of(M, 4).float()}),
    ("x_scale: shape is [3, 2, 4]; expected 2 dimensions", lambda: {"x_scale": bytes_of(M, TOP, 4)}),
    ("x_scale: shape is [3, 5]; expected dimension 1 to be 4, a scale for 32", lambda: {"x_scale": bytes_of(M, 5)}),
    ("x_scale: strides are [1, 3]; expected the last to be 1", lambda: {"x_scale": bytes_of(4, M).t()}),
    ("planes: dtype is int32; expected uint8", lambda: {"planes": ints(SLOTS, PARTS, N * K // 4)}),
    ("planes: shape is [3, 2048]; expected 3 dimensions", lambda: {"planes": bytes_of(SLOTS, 2048)}),
    ("planes: shape is [0, 2, 1024]; expected dimension 0 to be 1 to", lambda: {"planes": bytes_of(0, PARTS, 1024)}),
    ("planes: shape is [3, 3, 1024]; expected dimension 1 to be 1 to 2", lambda: {"planes": bytes_of(SLOTS, 3, 1024)}),
    (
        "planes: shape is [3, 2, 2048]; expected dimension 2 to be 1024, the bytes of N by K",
        lambda: {"planes": bytes_of(SLOTS, PARTS, 2048)},
    ),
    (
        "planes: strides are [2064, 1032, 1]; expected dimension 1's to be at least 1024 and a multiple of 16",
        lambda: {"planes": bytes_of(SLOTS, 2, 1032)[..., :1024]},
    ),
    ("planes: data begins at", lambda: {"planes": shifted(bytes_of(6 * 1024 + 1), SLOTS, PARTS, 1024)}),
    (
        "scales: shape is [2, 2, 128]; expected dimension 0 to be 3, as planes has",
        lambda: {"scales": bytes_of(2, PARTS, 128)},
    ),
    (
        "scales: shape is [3, 2, 256]; expected dimension 2 to be 128, the bytes of N by K",
        lambda: {"scales": bytes_of(SLOTS, PARTS, 256)},
    ),
    ("table: dtype is int64; expected int32", lambda: {"table": ints(EXPERTS).long()}),
    ("table: shape is [1, 5]; expected 1 dimensions", lambda: {"table": ints(1, EXPERTS)}),
    ("table: strides are [2] for shape [5]; expected a contiguous tensor", lambda: {"table": ints(10)[::2]}),
    ("delta_table: is absent; expected one, as there are delta_planes", lambda: {"delta_table": None}),
    ("delta_planes: is absent; expected one, as there is a delta_table", lambda: {"delta_planes": None}),
    (
        "delta_planes: are absent; expected some, as there are delta_scales",
        lambda: {"delta_planes": None, "delta_table": None},
    ),
    (
        "delta_planes: shape is [2, 1, 2048]; expected dimension 1 to be 2, as planes has",
        lambda: {"delta_planes": bytes_of(DELTAS, 1, 2048)},
    ),
    (
        "delta_planes: shape is [2, 2, 1024]; expected dimension 2 to be 2048, the bytes of N by K",
        lambda: {"delta_planes": bytes_of(DELTAS, PARTS, 1024)},
    ),
    (
        "delta_scales: shape is [3, 2, 128]; expected dimension 0 to be 2, as delta_planes has",
        lambda: {"delta_scales": bytes_of(3, PARTS, 128)},
    ),
    ("delta_table: shape is [6]; expected dimension 0 to be 5, as table has", lambda: {"delta_table": ints(6)}),
    ("out: dtype is float16; expected bfloat16 or float32", lambda: {"out": out(M, TOP, 64).half()}),
    ("out: shape is [3, 64]; expected 3 dimensions", lambda: {"out": out(M, 64)}),
    ("out: shape is [3, 1, 64]; expected dimension 1 to be 2, as topk_ids has", lambda: {"out": out(M, 1, 64)}),
    ("out: shape is [3, 2, 16]; expected dimension 2 to be 32 to", lambda: {"out": out(M, TOP, 16)}),
    ("out: shape is [3, 2, 80]; expected dimension 2 to be a multiple of 32", lambda: {"out": out(M, TOP, 80)}),
    ("out: strides are [256, 128, 1] for shape [3, 2, 64]; ex", lambda: {"out": out(M, TOP, 128)[..., :64]}),
    ("missing: dtype is int64; expected int32", lambda: {"missing": ints(1).long()}),
    ("missing: shape is [2]; expected dimension 0 to be 1, a counter", lambda: {"missing": ints(2)}),
    ("x: is not on a CUDA device; expected one", dict),
    (
        "x: is not on a CUDA device; expected one",
        lambda: {"delta_planes": None, "delta_scales": None, "delta_table": None},
    ),
    ("x: is not on a CUDA device; expected one", lambda: {"delta_scales": None}),
    ("x: is not on a CUDA device; expected one", lambda: {"x": fp8(M, TOP, K), "x_scale": bytes_of(M, TOP, 4)}),
    (
        "x: is not on a CUDA device; expected one",
        lambda: {"scales": bytes_of(SLOTS, PARTS, 128).view(torch.float8_e8m0fnu), "out": out(M, TOP, 64).float()},
    ),
]


@pytest.mark.parametrize(("message", "change"), MISUSES, ids=[message for message, _ in MISUSES])
def test_misuse(message: str, change: Change) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.ops.moet.moe_w2(*(arguments() | change()).values())
    assert str(caught.value).startswith(f"moe_w2: {message}")


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("planes: shape is [3, 2048]; expected 3 dimensions", {"planes": bytes_of(SLOTS, 2048)}),
        ("planes: shape is [0, 2, 1024]; expected dimension 0", {"planes": bytes_of(0, PARTS, 1024)}),
        ("planes: shape is []; expected 3 dimensions", {"planes": bytes_of(1)[0]}),
        ("x: shape is []; expected 2 dimensions", {"x": fp8(1)[0]}),
        ("x: shape is [3, 0]; expected dimension 1 to be 64 to 7168", {"x": fp8(M, 0)}),
        ("topk_ids: shape is []; expected 2 dimensions", {"topk_ids": ints(1)[0]}),
    ],
)
def test_misuse_where_the_output_is_made(message: str, change: Tensors) -> None:
    there: dict[str, Any] = arguments() | change
    base = Slots(there["planes"], there["scales"], there["table"])
    with pytest.raises(RuntimeError) as caught:
        moe_w2(there["x"], there["x_scale"], there["topk_ids"], base, missing=there["missing"])
    assert str(caught.value).startswith(f"moe_w2: {message}")


def test_schema() -> None:
    assert str(torch.ops.moet.moe_w2.default._schema) == (
        "moet::moe_w2(Tensor x, Tensor x_scale, Tensor topk_ids, Tensor planes, Tensor scales, Tensor table, "
        "Tensor? delta_planes, Tensor? delta_scales, Tensor? delta_table, Tensor(a!) out, Tensor(b!) missing, "
        "bool dependent=False, bool routed=False) -> ()"
    )


def test_limits_are_those_of_the_operator() -> None:
    """The ones in op.py are for callers; the misuses above have the operator's."""
    assert (MOST_ROWS, MOST_TOP, MOST_K, UNIT_N, UNIT_K) == (16, 8, 7168, 16, 64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("with_delta", [False, True])
@pytest.mark.parametrize("by_pair", [False, True])
def test_meta(by_pair: bool, with_delta: bool, dtype: torch.dtype) -> None:
    there = {name: tensor.to("meta") for name, tensor in arguments().items() if tensor is not None}
    x, x_scale = there["x"], there["x_scale"]
    if by_pair:
        x, x_scale = (tensor.unsqueeze(1).expand(M, TOP, -1) for tensor in (x, x_scale))
    base = Slots(there["planes"], there["scales"], there["table"])
    delta = Slots(there["delta_planes"], there["delta_scales"], there["delta_table"]) if with_delta else None
    result = moe_w2(x, x_scale, there["topk_ids"], base, delta, missing=there["missing"], out_dtype=dtype)
    assert (tuple(result.shape), result.dtype, result.device.type) == ((M, TOP, PARTS * N), dtype, "meta")
    assert result.is_contiguous()


@pytest.mark.parametrize("name", ["x", "out", "planes", "delta_planes", "missing"])
def test_meta_refuses_shapes_that_do_not_fit(name: str) -> None:
    there = {key: tensor.to("meta") for key, tensor in arguments().items() if tensor is not None}
    there[name] = torch.cat([there[name], there[name]], dim=-1)
    with pytest.raises(RuntimeError, match="moe_w2: "):
        torch.ops.moet.moe_w2(*there.values())
