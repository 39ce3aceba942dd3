"""What can be seen of the operator without a GPU: that it loads, is registered, and says what it cannot take."""

from collections.abc import Callable

import pytest
import torch

from kernels.skinny_gemm.op import skinny_gemm


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def misaligned() -> torch.Tensor:
    return bf16(3 * 64 + 1)[1:].view(3, 64)


MISUSES: list[tuple[str, Callable[[], dict[str, torch.Tensor]]]] = [
    ("x: dtype is float16; expected bfloat16", lambda: {"x": bf16(3, 64).half()}),
    ("x: shape is [64]; expected 2 dimensions", lambda: {"x": bf16(64)}),
    ("x: shape is [0, 64]; expected dimension 0 to be 1 to 16", lambda: {"x": bf16(0, 64)}),
    ("x: shape is [17, 64]; expected dimension 0 to be 1 to 16", lambda: {"x": bf16(17, 64)}),
    ("x: shape is [3, 0]; expected dimension 1 to be 8 to 10240", lambda: {"x": bf16(3, 0)}),
    ("x: shape is [3, 10248]; expected dimension 1 to be 8 to 10240", lambda: {"x": bf16(3, 10248)}),
    ("x: shape is [3, 60]; expected dimension 1 to be a multiple of 8", lambda: {"x": bf16(3, 60)}),
    ("x: strides are [1, 3]; expected the last to be 1", lambda: {"x": bf16(64, 3).t()}),
    ("x: strides are [0, 1]; expected dimension 0's to be at least 64", lambda: {"x": bf16(1, 64).expand(3, 64)}),
    ("x: strides are [68, 1]; expected dimension 0's to be", lambda: {"x": bf16(3, 68)[:, :64]}),
    ("x: data begins at an address that is no multiple of 16 bytes", lambda: {"x": misaligned()}),
    ("weight: dtype is float32; expected bfloat16", lambda: {"weight": bf16(5, 64).float()}),
    ("weight: shape is [5, 1, 64]; expected 2 dimensions", lambda: {"weight": bf16(5, 1, 64)}),
    ("weight: shape is [5, 72]; expected dimension 1 to be 64, as x has", lambda: {"weight": bf16(5, 72)}),
    ("weight: strides are [1, 5]; expected the last to be 1", lambda: {"weight": bf16(64, 5).t()}),
    ("weight: shape is [0, 64]; expected dimension 0 to be", lambda: {"weight": bf16(0, 64), "out": bf16(3, 0)}),
    ("weight: data begins at", lambda: {"weight": bf16(5 * 64 + 1)[1:].view(5, 64)}),
    ("out: dtype is float16; expected bfloat16 or float32", lambda: {"out": bf16(3, 5).half()}),
    ("out: shape is [4, 5]; expected dimension 0 to be 3, as x has", lambda: {"out": bf16(4, 5)}),
    ("out: shape is [3, 6]; expected dimension 1 to be 5, as weight has rows", lambda: {"out": bf16(3, 6)}),
    ("out: strides are [1, 3]; expected the last to be 1", lambda: {"out": bf16(5, 3).t()}),
    ("x: is not on a CUDA device; expected one", dict),
]


@pytest.mark.parametrize(("message", "change"), MISUSES, ids=[message for message, _ in MISUSES])
def test_misuse(message: str, change: Callable[[], dict[str, torch.Tensor]]) -> None:
    arguments = {"x": bf16(3, 64), "weight": bf16(5, 64), "out": bf16(3, 5)} | change()
    with pytest.raises(RuntimeError) as caught:
        torch.ops.moet.skinny_gemm(arguments["x"], arguments["weight"], arguments["out"])
    assert str(caught.value).startswith(f"skinny_gemm: {message}")


def test_schema() -> None:
    schema = str(torch.ops.moet.skinny_gemm.default._schema)
    assert schema == "moet::skinny_gemm(Tensor x, Tensor weight, Tensor(a!) out, bool dependent=False) -> ()"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_meta(dtype: torch.dtype) -> None:
    x, weight = bf16(6, 5120).to("meta"), bf16(32, 5120).to("meta")
    result = skinny_gemm(x, weight, out_dtype=dtype)
    assert (result.shape, result.dtype, result.device.type) == ((6, 32), dtype, "meta")


def test_meta_refuses_other_shapes() -> None:
    with pytest.raises(RuntimeError, match="weight: expected as many columns"):
        skinny_gemm(bf16(6, 64).to("meta"), bf16(32, 72).to("meta"))
