"""What can be seen of the operators without a GPU: that they load, are registered, and say what they cannot take."""

from collections.abc import Callable

import pytest
import torch

from kernels.mxfp8_gemv.op import mxfp8_gemv, mxfp8_grouped_gemv

Change = Callable[[], dict[str, torch.Tensor]]


def fp8(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8).view(torch.float8_e4m3fn)


def scales(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


def words(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def out(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def shifted(flat: torch.Tensor, *shape: int) -> torch.Tensor:
    return flat[1:].view(*shape)


PLAIN: list[tuple[str, Change]] = [
    ("x: dtype is bfloat16; expected float8_e4m3fn", lambda: {"x": out(3, 576)}),
    ("x: shape is [576]; expected 2 dimensions", lambda: {"x": fp8(576)}),
    ("x: shape is [0, 576]; expected dimension 0 to be 1 to 64", lambda: {"x": fp8(0, 576)}),
    ("x: shape is [65, 576]; expected dimension 0 to be 1 to 64", lambda: {"x": fp8(65, 576)}),
    (
        "x: shape is [3, 640]; expected the last dimension to be one of 288, 576, 1024, 1152, 1280, 2048, 2304, 4096, "
        "5120, 8192",
        lambda: {"x": fp8(3, 640)},
    ),
    ("x: strides are [584, 1]; expected dimension 0's to be at least", lambda: {"x": fp8(3, 584)[:, :576]}),
    ("x: strides are [1, 3]; expected the last to be 1", lambda: {"x": fp8(576, 3).t()}),
    ("x: data begins at an address that is no multiple of 16", lambda: {"x": shifted(fp8(3 * 576 + 1), 3, 576)}),
    ("x_scale: dtype is float32; expected uint8 or float8_e8m0fnu", lambda: {"x_scale": scales(3, 18).float()}),
    (
        "x_scale: shape is [3, 17], 51 scales; expected 54, for 3 rows of 18 without padding",
        lambda: {"x_scale": scales(3, 17)},
    ),
    ("x_scale: strides are [36, 1] for shape [3, 18]; expected a cont", lambda: {"x_scale": scales(3, 36)[:, :18]}),
    ("x_scale: data begins at an address that is no multiple of 4", lambda: {"x_scale": shifted(scales(55), 3, 18)}),
    ("weight: dtype is uint8; expected float8_e4m3fn", lambda: {"weight": scales(16, 576)}),
    ("weight: shape is [16, 1280]; expected dimension 1 to be 576, as x has", lambda: {"weight": fp8(16, 1280)}),
    ("weight: shape is [15, 576]; expected dimension 0 to be 16 to", lambda: {"weight": fp8(15, 576)}),
    ("weight: strides are [1, 16] for shape [16, 576]; expected a", lambda: {"weight": fp8(576, 16).t()}),
    ("weight: data begins at", lambda: {"weight": shifted(fp8(16 * 576 + 1), 16, 576)}),
    (
        "weight_scale: shape is [18, 16, 2], 576 scales; expected 288, for 16 rows of 18 without padding",
        lambda: {"weight_scale": scales(18, 16, 2)},
    ),
    ("out: dtype is float32; expected bfloat16", lambda: {"out": out(3, 16).float()}),
    ("out: shape is [2, 16]; expected dimension 0 to be 3, as x has", lambda: {"out": out(2, 16)}),
    ("out: shape is [3, 17]; expected dimension 1 to be 16, as weight has rows", lambda: {"out": out(3, 17)}),
    ("out: strides are [32, 1] for shape [3, 16]; expected a contiguous", lambda: {"out": out(3, 32)[:, :16]}),
    ("x: is not on a CUDA device; expected one", dict),
]
PACKED: list[tuple[str, Change]] = [
    ("x_scale: dtype is uint8; expected int32", lambda: {"x_scale": scales(3, 2, 10)}),
    ("x_scale: shape is [6, 10]; expected 3 dimensions", lambda: {"x_scale": words(6, 10)}),
    ("x_scale: shape is [4, 2, 10]; expected dimension 0 to be 3, as x has", lambda: {"x_scale": words(4, 2, 10)}),
    ("x_scale: shape is [3, 1, 10]; expected dimension 1 to be 2, as x has", lambda: {"x_scale": words(3, 1, 10)}),
    ("x_scale: shape is [3, 2, 9]; expected dimension 2 to be 10, a word", lambda: {"x_scale": words(3, 2, 9)}),
    (
        "x_scale: strides are [20, 10, 1] for shape [3, 2, 10]; expected dimension 0's to be 1, and the others' to be "
        "at least 3",
        lambda: {"x_scale": words(3, 2, 10)},
    ),
    (
        "x_scale: strides are [1, 20, 2] for shape [3, 2, 10]; expected dimension 0's",
        lambda: {"x_scale": words(64).as_strided((3, 2, 10), (1, 20, 2))},
    ),
    (
        "x: shape is [3, 2, 576]; expected dimension 2 to be a multiple of 128",
        lambda: {"x": fp8(3, 2, 576), "weight": fp8(2, 16, 576)},
    ),
    ("x: is not on a CUDA device; expected one", dict),
]
GROUPED: list[tuple[str, Change]] = [
    ("x: shape is [3, 576]; expected 3 dimensions", lambda: {"x": fp8(3, 576)}),
    ("weight: shape is [3, 16, 576]; expected dimension 0 to be 2, as x has", lambda: {"weight": fp8(3, 16, 576)}),
    ("out: shape is [3, 1, 16]; expected dimension 1 to be 2, as x has groups", lambda: {"out": out(3, 1, 16)}),
    (
        "x_scale: shape is [128, 20], 2560 scales; expected 108, for 6 rows of 18 without padding",
        lambda: {"x_scale": scales(128, 20)},
    ),
    ("x: is not on a CUDA device; expected one", dict),
]


def refusal(op: Callable[..., None], arguments: dict[str, torch.Tensor], swizzled: bool, **more: bool) -> str:
    names = ("x", "x_scale", "weight", "weight_scale", "out")
    with pytest.raises(RuntimeError) as caught:
        op(*[arguments[name] for name in names], swizzled, **more)
    return str(caught.value)


def plain() -> dict[str, torch.Tensor]:
    return {
        "x": fp8(3, 576),
        "x_scale": scales(3, 18),
        "weight": fp8(16, 576),
        "weight_scale": scales(16, 18),
        "out": out(3, 16),
    }


def grouped() -> dict[str, torch.Tensor]:
    return {
        "x": fp8(3, 2, 576),
        "x_scale": scales(6, 18),
        "weight": fp8(2, 16, 576),
        "weight_scale": scales(32, 18),
        "out": out(3, 2, 16),
    }


def packed() -> dict[str, torch.Tensor]:
    return {
        "x": fp8(2, 3, 1280).transpose(0, 1),
        "x_scale": words(2, 10, 4).permute(2, 0, 1)[:3],
        "weight": fp8(2, 16, 1280),
        "weight_scale": scales(32, 40),
        "out": out(3, 2, 16),
    }


@pytest.mark.parametrize(("message", "change"), PLAIN, ids=[message for message, _ in PLAIN])
def test_misuse(message: str, change: Change) -> None:
    said = refusal(torch.ops.moet.mxfp8_gemv, plain() | change(), swizzled=False)
    assert said.startswith(f"mxfp8_gemv: {message}")


@pytest.mark.parametrize(("message", "change"), GROUPED, ids=[message for message, _ in GROUPED])
def test_misuse_of_groups(message: str, change: Change) -> None:
    said = refusal(torch.ops.moet.mxfp8_grouped_gemv, grouped() | change(), swizzled=False)
    assert said.startswith(f"mxfp8_grouped_gemv: {message}")


@pytest.mark.parametrize(("message", "change"), PACKED, ids=[message for message, _ in PACKED])
def test_misuse_of_packed_scales(message: str, change: Change) -> None:
    said = refusal(torch.ops.moet.mxfp8_grouped_gemv, packed() | change(), swizzled=False, packed=True)
    assert said.startswith(f"mxfp8_grouped_gemv: {message}")


def test_swizzled_scales_come_in_whole_tiles() -> None:
    said = refusal(torch.ops.moet.mxfp8_gemv, plain(), swizzled=True)
    assert said == (
        "mxfp8_gemv: x_scale: shape is [3, 18], 54 scales; expected 2560, for 3 rows of 18 in whole tiles of 128 by 4"
    )
    whole = plain() | {"x_scale": scales(2560), "weight_scale": scales(128, 20)}
    assert refusal(torch.ops.moet.mxfp8_gemv, whole, swizzled=True).startswith("mxfp8_gemv: x: is not on a CUDA device")


def test_scales_of_torchs_own_type() -> None:
    typed = {name: plain()[name].view(torch.float8_e8m0fnu) for name in ("x_scale", "weight_scale")}
    said = refusal(torch.ops.moet.mxfp8_gemv, plain() | typed, swizzled=False)
    assert said.startswith("mxfp8_gemv: x: is not on a CUDA device")


@pytest.mark.parametrize(("name", "layout"), [("mxfp8_gemv", ""), ("mxfp8_grouped_gemv", "bool packed=False, ")])
def test_schema(name: str, layout: str) -> None:
    assert str(getattr(torch.ops.moet, name).default._schema) == (
        f"moet::{name}(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, Tensor(a!) out, "
        f"bool swizzled, {layout}bool dependent=False) -> ()"
    )


def test_meta() -> None:
    x, x_scale, weight, weight_scale, _ = (tensor.to("meta") for tensor in plain().values())
    result = mxfp8_gemv(x, x_scale, weight, weight_scale, swizzled=False)
    assert (tuple(result.shape), result.dtype, result.device.type) == ((3, 16), torch.bfloat16, "meta")


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
def test_meta_of_groups(is_packed: bool) -> None:
    x, x_scale, weight, weight_scale, _ = (t.to("meta") for t in (packed() if is_packed else grouped()).values())
    result = mxfp8_grouped_gemv(x, x_scale, weight, weight_scale, swizzled=False, packed=is_packed)
    assert (tuple(result.shape), result.dtype, result.device.type) == ((3, 2, 16), torch.bfloat16, "meta")
    assert result.is_contiguous()
