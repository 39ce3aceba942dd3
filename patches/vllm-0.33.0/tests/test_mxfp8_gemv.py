"""Step mxfp8-gemv: which dense MXFP8 layers take the GEMV, what reaches it, and that the rest stays FlashInfer's."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import stand_ins
import torch
from vllm.model_executor.kernels.linear.mxfp8 import Mxfp8LinearLayerConfig
from vllm.model_executor.layers.fusion.quant_activation import QuantizedActivation
from vllm.model_executor.layers.quantization.utils.mxfp8_utils import _mxfp8_e4m3_quantize_torch
from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp8Dynamic

SWITCH = "VLLM_MOET_MXFP8_GEMV"
MODULE = "vllm.model_executor.kernels.linear.mxfp8.flashinfer"

# [N, K] of DeepSeek-V4.1-Flash's dense MXFP8 layers on one of TP cards.
LAYERS = [
    ("fused_wqa_wkv", lambda tp: (1280 + 512, 5120)),
    ("wq_b", lambda tp: (64 * 512 // tp, 1280)),
    ("wo_b", lambda tp: (5120, 8 * 1024 // tp)),
    ("shared gate_up", lambda tp: (2 * 2304 // tp, 5120)),
    ("shared down", lambda tp: (5120, 2304 // tp)),
    ("indexer wq_b", lambda tp: (32 * 128, 1280)),
]
SHAPES = [
    pytest.param(*shape(tp), id=f"{name} tp{tp}")
    for name, shape in LAYERS
    for tp in (1, 2, 4, 8)
    if tp == 1 or shape(tp) != shape(1)
]

Fresh = Callable[..., ModuleType]


class Bench:
    """The linear kernel under a value of the switch, with stand-ins for both GEMMs, which keep their arguments."""

    def __init__(self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch, switch: str | None, compute: bool) -> None:
        """`compute`: whether the stand-in for the GEMV computes, or checks its arguments alone."""
        self.module: Any = fresh(MODULE, **{SWITCH: switch})
        self.gemv: list[dict[str, Any]] = []
        self.flashinfer: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        monkeypatch.setattr(self.module, "mxfp8_e4m3_quantize", _mxfp8_e4m3_quantize_torch)
        monkeypatch.setattr(self.module.vllm_flashinfer, "mm_mxfp8", self._mm_mxfp8, raising=False)
        if switch == "1":
            stand_in = stand_ins.mxfp8_gemv(self.gemv, compute)
            monkeypatch.setattr(self.module.linear_mxfp8, "mxfp8_gemv", stand_in)

    def _mm_mxfp8(self, *arguments: Any, **options: Any) -> torch.Tensor:
        self.flashinfer.append((arguments, options))
        return torch.zeros(arguments[0].shape[0], arguments[1].shape[1], dtype=options["out_dtype"])

    def layer(self, codes: torch.Tensor, scales: torch.Tensor) -> Callable[..., torch.Tensor]:
        """A layer with these weights, loaded as the model loads them."""
        layer = torch.nn.Module()
        layer.weight = torch.nn.Parameter(codes, requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(scales, requires_grad=False)
        kernel = self.module.FlashInferCutlassMxfp8LinearKernel(Mxfp8LinearLayerConfig(tuple(codes.shape)))
        kernel.process_weights_after_loading(layer)
        return lambda x, bias=None: kernel.apply_weights(layer, x, bias)

    def empty_layer(self, n: int, k: int) -> Callable[..., torch.Tensor]:
        """A layer whose weights nobody reads."""
        return self.layer(torch.empty(n, k, dtype=torch.float8_e4m3fn), torch.zeros(n, k // 32, dtype=torch.uint8))


@pytest.fixture
def bench(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    return lambda switch, compute=False: Bench(fresh, monkeypatch, switch, compute)


def rows(count: int, k: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(count, k, generator=torch.Generator().manual_seed(count), dtype=torch.float32).to(dtype)


def quantized(x: torch.Tensor) -> QuantizedActivation:
    """What a kernel ahead of the layer hands over."""
    codes, scales = _mxfp8_e4m3_quantize_torch(x, True)
    return QuantizedActivation(codes, scales, x.dtype, x.shape, kMxfp8Dynamic)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_every_dense_layer_takes_the_gemv_up_to_16_rows(bench: Callable[..., Bench], n: int, k: int) -> None:
    on = bench("1")
    layer = on.empty_layer(n, k)
    for count in (1, 6, 8, 16):
        assert layer(quantized(rows(count, k))).shape == (count, n)
    assert (len(on.gemv), len(on.flashinfer)) == (4, 0)
    layer(quantized(rows(17, k)))
    assert (len(on.gemv), len(on.flashinfer)) == (4, 1)


@pytest.mark.parametrize("k", [288, 576, 1280, 5120])
@pytest.mark.parametrize("give", [lambda x: x, quantized], ids=["bfloat16", "quantized before"])
def test_what_reaches_the_gemv_is_the_product(bench: Callable[..., Bench], k: int, give: Any) -> None:
    on = bench("1", compute=True)
    # Neither operand fills its last tile of scales, nor its last four columns.
    codes, scales = stand_ins.mxfp8(rows(160, k))
    layer = on.layer(codes, scales)
    for count in (1, 6, 16):
        x = rows(count, k)
        expected = stand_ins.numbers(*stand_ins.mxfp8(x)) @ stand_ins.numbers(codes, scales).T
        stand_ins.close(layer(give(x)), expected)
    assert not on.flashinfer


def test_leading_dimensions_and_a_bias_are_kept(bench: Callable[..., Bench]) -> None:
    on = bench("1", compute=True)
    codes, scales = stand_ins.mxfp8(rows(128, 576))
    x, bias = rows(6, 576), rows(1, 128)[0]
    layer = on.layer(codes, scales)
    result = layer(x.view(2, 3, 576), bias)
    assert result.shape == (2, 3, 128)
    assert torch.equal(result.view(6, 128), layer(x) + bias)
    assert len(on.gemv) == 2


OTHERS = [
    pytest.param({"count": 17}, "a batch has no row, or more than 16", id="17 rows"),
    pytest.param({"count": 8192}, "a batch has no row, or more than 16", id="8192 rows"),
    pytest.param({"k": 1536}, "layer [256, 1536] has another K than ", id="another K"),
    pytest.param({"dtype": torch.float16}, "layer [256, 576] wants torch.float16, not torch.bfloat16", id="float16"),
    pytest.param({"card": (10, 0)}, "the device is not of compute capability 12.0", id="sm_100"),
    pytest.param({"card": (12, 1)}, "the device is not of compute capability 12.0", id="sm_121"),
    pytest.param({"invariant": True}, "batch invariance is asked for", id="batch invariance"),
]


@pytest.mark.parametrize(("change", "reason"), OTHERS)
def test_whatever_else_reaches_flashinfer_as_without_the_switch(
    bench: Callable[..., Bench],
    device: Callable[[int, int], None],
    monkeypatch: pytest.MonkeyPatch,
    logged: list[str],
    change: dict[str, Any],
    reason: str,
) -> None:
    case = SimpleNamespace(
        **{"count": 6, "k": 576, "dtype": torch.bfloat16, "card": (12, 0), "invariant": False} | change
    )
    device(*case.card)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", str(int(case.invariant)))
    codes, scales = stand_ins.mxfp8(rows(256, case.k))
    x = rows(case.count, case.k, case.dtype)
    calls = []
    for switch in ("0", "1"):
        run = bench(switch)
        layer = run.layer(codes.clone(), scales.clone())
        for _ in range(3):
            layer(x)
        assert not run.gemv
        calls += [run.flashinfer[0], run.flashinfer[2]]
    for arguments, options in calls[1:]:
        assert options == calls[0][1] == {"out_dtype": case.dtype, "backend": "cutlass"}
        for mine, theirs in zip(arguments, calls[0][0], strict=True):
            assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())
            assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))
    assert len(logged) == 1
    assert logged[0].startswith(f"{SWITCH}: FlashInfer's GEMM where {reason}")


def test_each_reason_is_logged_once(bench: Callable[..., Bench], logged: list[str]) -> None:
    on = bench("1")
    for k in (576, 1536, 1536):
        layer = on.empty_layer(256, k)
        for count in (6, 17, 300):
            layer(rows(count, k))
    assert [line.partition("where ")[2].partition(" K than")[0] for line in logged] == [
        "a batch has no row, or more than 16",
        "layer [256, 1536] has another",
    ]


def test_an_activation_with_other_scales_reaches_flashinfer(bench: Callable[..., Bench], logged: list[str]) -> None:
    on = bench("1")
    layer = on.empty_layer(256, 576)
    x = quantized(rows(6, 576))
    x.scale = x.scale[:-4]
    layer(x)
    assert (len(on.gemv), len(on.flashinfer)) == (0, 1)
    assert "layer [256, 576] gets an activation whose scales are not" in logged[0]


def test_while_tracing_it_is_flashinfers(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    on = bench("1")
    layer = on.empty_layer(256, 576)
    with monkeypatch.context() as tracing:
        tracing.setattr(torch.compiler, "is_compiling", lambda: True)
        layer(rows(6, 576))
    assert (len(on.gemv), len(on.flashinfer)) == (0, 1)
    layer(rows(6, 576))
    assert (len(on.gemv), len(on.flashinfer)) == (1, 1)


@pytest.mark.parametrize("switch", [None, "0"], ids=["default", "off"])
def test_off_it_is_flashinfers_and_needs_no_kernels(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, logged: list[str], switch: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    off = bench(switch)
    off.empty_layer(1792, 5120)(rows(6, 5120))
    assert (len(off.flashinfer), logged) == (1, [])


def test_on_without_the_kernels_nothing_is_served(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    with pytest.raises(ImportError, match="moet_kernels"):
        fresh(MODULE, **{SWITCH: "1"})
