"""Step moe-front: from the router's logits to the first grouped GEMM of the FP4 experts, in one launch."""

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.model_executor.layers.fused_moe import deep_gemm_utils, modular_kernel
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    FusedMoEQuantConfig,
    FusedMoEQuantDesc,
    RoutingMethodType,
)
from vllm.model_executor.layers.fused_moe.experts import deep_gemm_moe
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import MoEPrepareAndFinalizeNoDPEPModular
from vllm.model_executor.layers.fused_moe.router.fused_topk_bias_router import FusedTopKBiasRouter
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

TOP_K, EXPERTS, HIDDEN, INTERMEDIATE = 6, 384, 1024, 128
SCALING = 1.5
IMAGE = 100
NAME = "vllm.model_executor.layers.fused_moe.moet_front"

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@dataclass
class Kernel:
    """In place of the family's operator: numpy's oracle on exactly what it is handed.

    Before that, the real one is to find nothing wrong with it but that it is not on a GPU, which it looks at last.
    """

    operator: Callable[..., Any]

    calls: list[dict[str, Any]] = field(default_factory=list)

    def moe_front(self, logits: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, **rest: Any) -> Any:
        """Fills `out` as the kernel does: rows of tokens, and every element of the rest."""
        from moet_kernels.moe_front import reference

        with pytest.raises(RuntimeError, match=r": logits: is not on a CUDA device; expected one$"):
            self.operator(logits, bias, x, **rest)
        self.calls.append({"logits": logits, "bias": bias, "x": x, **rest})
        out, alignment = rest["out"], rest["alignment"]
        assert rest["group"] == 128
        assert out.a.shape == (reference.rows(len(x), EXPERTS, alignment), x.shape[1])
        assert out.a_scale.stride() == (1, len(out.a))
        row_bias = np.repeat(bias.numpy()[None], len(x), axis=0)
        if rest["image_bias"] is not None:
            images = reference.image_tokens(rest["token_ids"].numpy().astype(np.int64), rest["image_first"])
            row_bias[images] = rest["image_bias"].numpy()
        ids, weights = reference.route(logits.numpy(), row_bias, rest["scaling_factor"])
        if rest["is_padding"] is not None:
            ids[rest["is_padding"].numpy()], weights[rest["is_padding"].numpy()] = -1, 0
        places = reference.place(ids, EXPERTS, alignment)
        codes, scales = reference.quantize(x.float().numpy(), 128)
        # A row that the kernel leaves alone holds whatever was there.
        out.a.view(torch.uint8).fill_(0x7F)
        out.a_scale.fill_(-1)
        for token, slot in np.argwhere(places.inv_perm >= 0):
            row = places.inv_perm[token, slot]
            out.a.view(torch.uint8)[row] = torch.from_numpy(codes[token])
            out.a_scale[row] = torch.from_numpy(reference.words(scales)[token])
        for target, source in (
            (out.m_indices, places.m_indices),
            (out.inv_perm, places.inv_perm),
            (out.topk_ids, ids),
            (out.topk_weights, weights),
        ):
            target.copy_(torch.from_numpy(source))
        return out


def _numbers(operand: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """FP8 activations with a scale for 128 columns: float32, or four UE8M0 in a word."""
    values, scales = operand
    if scales.dtype == torch.int32:
        scales = torch.exp2(scales.clone(memory_format=torch.contiguous_format).view(torch.uint8).float() - 127)
    return values.float() * scales.repeat_interleave(128, dim=1)


def _weights(packed: torch.Tensor) -> torch.Tensor:
    """FP4 weights as numbers, whose scales are all 1 here."""
    codes = packed.view(torch.uint8)
    return E2M1[torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).long()]


def _gemm(
    a: tuple[torch.Tensor, torch.Tensor],
    b: tuple[torch.Tensor, torch.Tensor],
    out: torch.Tensor,
    groups: torch.Tensor,
    **options: Any,
) -> None:
    """DeepGEMM's contiguous grouped GEMM: a row's expert is in `groups`, and -1 is padding, which is skipped."""
    assert not options["use_psum_layout"]
    out.fill_(torch.nan)
    rows = _numbers(a)
    for expert in set(groups.tolist()) - {-1}:
        at = groups == expert
        out[at] = (rows[at] @ _weights(b[0][expert]).T).to(out.dtype)


def _activate(self: Any, *, input: torch.Tensor, output: torch.Tensor, **options: Any) -> Any:  # noqa: A002
    gate, up = input.float().chunk(2, dim=1)
    active = torch.nn.functional.silu(gate) * up
    scales = active.abs().amax(dim=1, keepdim=True) / 448
    return output.copy_(active / scales), scales


def _reduce(
    *,
    a: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    inv_perm: torch.Tensor,
    expert_map: object,
    output: torch.Tensor,
) -> None:
    rows = torch.where((topk_ids >= 0)[..., None], a[inv_perm.long()].float() * topk_weights[..., None], 0.0)
    output.copy_(rows.sum(dim=1))


@functools.cache
def _experts() -> tuple[torch.Tensor, torch.Tensor]:
    """FP4 weights [384, 256, 512] and [384, 1024, 64]."""
    generator = torch.Generator().manual_seed(4)
    shapes = (EXPERTS, 2 * INTERMEDIATE, HIDDEN // 2), (EXPERTS, HIDDEN, INTERMEDIATE // 2)
    w13, w2 = (torch.randint(256, shape, dtype=torch.uint8, generator=generator) for shape in shapes)
    return w13, w2


class Layer:
    """A routed layer of DeepSeek V4.1 as vLLM composes it on sm_120, and what of it needs a GPU replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        generator = torch.Generator().manual_seed(5)
        self.w13, self.w2 = _experts()
        self.bias, self.image_bias = torch.randn(2, EXPERTS, generator=generator)
        fp8 = FusedMoEQuantDesc(torch.float8_e4m3fn, GroupShape(128, 128))
        fp4 = FusedMoEQuantDesc("mxfp4", None, torch.ones(1))
        experts = deep_gemm_moe.DeepGemmFP4Experts(
            FusedMoEConfig(
                num_experts=EXPERTS,
                experts_per_token=TOP_K,
                hidden_dim=HIDDEN,
                intermediate_size=INTERMEDIATE,
                num_local_experts=EXPERTS,
                num_logical_experts=EXPERTS,
                activation=MoEActivation.SILU,
                device="cpu",
                routing_method=RoutingMethodType.Unspecified,
                moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
                in_dtype=torch.bfloat16,
            ),
            FusedMoEQuantConfig(_a1=fp8, _a2=fp8, _w1=fp4, _w2=fp4),
        )
        self.experts = experts
        self.kernel = modular_kernel.FusedMoEKernel(MoEPrepareAndFinalizeNoDPEPModular(), experts)
        self.router = FusedTopKBiasRouter(
            TOP_K, EXPERTS, self.bias, routed_scaling_factor=SCALING, scoring_func="sqrtsoftplus"
        )
        self.method = SimpleNamespace(is_monolithic=False, moe_kernel=self.kernel, topk_indices_dtype=None)
        self.routed = SimpleNamespace(
            quant_method=self.method,
            expert_map=None,
            apply_router_weight_on_input=False,
            forward_modular=self._forward_modular,
        )
        self.runner: Any = SimpleNamespace(
            router=self.router,
            routed_experts=self.routed,
            _quant_method=self.method,
            _shared_experts=None,
            _maybe_apply_shared_experts=lambda *args: None,
        )
        self.scopes: list[int] = []
        monkeypatch.setattr(deep_gemm_moe, "m_grouped_fp8_fp4_gemm_nt_contiguous", _gemm)
        monkeypatch.setattr(deep_gemm_moe, "deepgemm_unpermute_and_reduce", _reduce)
        monkeypatch.setattr(deep_gemm_moe, "mk_alignment_scope", self._scope)
        monkeypatch.setattr(deep_gemm_moe.DeepGemmFP4Experts, "_act_mul_quant", _activate)
        workspaces = SimpleNamespace(
            get_simultaneous=lambda *specs: [torch.empty(*spec[:1], dtype=spec[1]) for spec in specs]
        )
        monkeypatch.setattr(modular_kernel, "current_workspace_manager", lambda: workspaces)

    def __call__(self, x: torch.Tensor, logits: torch.Tensor, ids: torch.Tensor | None = None) -> torch.Tensor:
        """The routed output, as the runner makes it."""
        _, output = MoERunner._apply_quant_method(self.runner, x, logits, None, ids)
        return output

    def expected(self, x: torch.Tensor, logits: torch.Tensor, images: torch.Tensor | None = None) -> torch.Tensor:
        """The routed output of unquantized activations."""
        bias = self.bias.expand_as(logits)
        if images is not None:
            bias = torch.where(images[:, None], self.image_bias, bias)
        scores = torch.nn.functional.softplus(logits.double()).sqrt()
        chosen = (scores + bias).topk(TOP_K, dim=1).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(dim=1, keepdim=True) * SCALING
        output = torch.zeros(x.shape, dtype=torch.float64)
        for token in range(len(x)):
            for expert, weight in zip(chosen[token].tolist(), weights[token], strict=True):
                gate, up = (_weights(self.w13[expert]) @ x[token].float()).double().chunk(2)
                hidden = torch.nn.functional.silu(gate) * up
                output[token] += weight * (_weights(self.w2[expert]).double() @ hidden)
        return output

    def _forward_modular(self, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, **rest: Any) -> Any:
        return self.kernel.apply(
            hidden_states=x,
            w1=self.w13,
            w2=self.w2,
            topk_weights=topk_weights,
            topk_ids=topk_ids,
            activation=MoEActivation.SILU,
            global_num_experts=EXPERTS,
            expert_map=None,
            apply_router_weight_on_input=False,
        )

    @contextlib.contextmanager
    def _scope(self, alignment: int) -> Iterator[None]:
        self.scopes.append(alignment)
        yield


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Layer:
    return Layer(monkeypatch)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The switch on, and the fake kernel where the dispatch looks for the real one."""
    from moet_kernels.dispatch import moe
    from moet_kernels.moe_front import op

    module = importlib.import_module(NAME)
    fake = Kernel(op.moe_front)
    monkeypatch.setattr(op, "moe_front", fake.moe_front)
    monkeypatch.setattr(module, "_MOE_FRONT", True)
    monkeypatch.setattr(module, "moe", moe, raising=False)
    for place in (module, deep_gemm_moe):
        monkeypatch.setattr(place, "get_mk_alignment_for_contiguous_layout", lambda: [128, 128])
    monkeypatch.setattr(module.DeepGemmQuantScaleFMT, "from_oracle", lambda: module.DeepGemmQuantScaleFMT.UE8M0)
    return fake


def _batch(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=generator).bfloat16()
    return x, torch.randn(tokens, EXPERTS, generator=generator)


def _close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Within what FP8 activations and bfloat16 in between cost."""
    assert torch.isfinite(got).all()
    assert (got.double() - expected).norm() < 0.06 * expected.norm()


@pytest.mark.parametrize(("switch", "on"), [(None, False), ("0", False), ("1", True)])
def test_the_switch_is_off_by_default(fresh: Callable[..., ModuleType], switch: str | None, on: bool) -> None:
    module: Any = fresh(NAME, VLLM_MOET_MOE_FRONT=switch)
    assert module._MOE_FRONT is on


def test_on_kernels_that_do_not_load_are_said_at_import(
    fresh: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    fresh(NAME, VLLM_MOET_MOE_FRONT="0")
    with pytest.raises(ImportError, match=r"moet_kernels\.dispatch"):
        fresh(NAME, VLLM_MOET_MOE_FRONT="1")


@pytest.mark.parametrize("alignment", [128, 64])
@pytest.mark.parametrize("tokens", [1, 6, 16])
def test_on_the_layers_result_comes_from_one_launch(
    on: Kernel, layer: Layer, logged: list[str], monkeypatch: pytest.MonkeyPatch, tokens: int, alignment: int
) -> None:
    """64 rows where step moe-row-alignment says so; the GEMMs are told the number that rows were laid out by."""
    monkeypatch.setattr(deep_gemm_utils, "_SM120_MOE_BLOCK_M", 64 if alignment == 64 else 0)
    monkeypatch.setattr(layer.router, "select_experts", None)
    x, logits = _batch(tokens)
    _close(layer(x, logits), layer.expected(x, logits))
    (call,) = on.calls
    assert call["logits"] is logits
    assert call["x"] is x
    assert call["bias"].data_ptr() == layer.bias.data_ptr()
    assert call["alignment"] == alignment
    assert call["scaling_factor"] == SCALING
    assert call["dependent"]
    assert layer.scopes == [alignment]
    assert logged == []


def test_on_tokens_of_images_and_padding_are_told_apart(
    on: Kernel, layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer.router.bias_vl, layer.router.image_sentinel_lo = layer.image_bias, IMAGE
    padding = torch.tensor([False] * 7 + [True])
    monkeypatch.setattr(importlib.import_module(NAME), "_get_padding_mask", lambda tokens: padding[:tokens])
    x, logits = _batch(8)
    ids = torch.tensor([5, IMAGE - 1, IMAGE, IMAGE + 4, IMAGE + 5, IMAGE + 1, 7, 7])
    got, expected = layer(x, logits, ids), layer.expected(x, logits, (ids >= IMAGE) & (ids < IMAGE + 5))
    _close(got[:7], expected[:7])
    assert not got[7].any()


def test_on_a_layer_without_image_tokens_gets_no_ids(on: Kernel, layer: Layer) -> None:
    x, logits = _batch(2)
    layer(x, logits, torch.zeros(2, dtype=torch.int64))
    (call,) = on.calls
    assert call["token_ids"] is call["image_bias"] is call["is_padding"] is None
    assert call["image_first"] == 0


class RoutedError(Exception):
    """vLLM's own path was taken: its router was asked."""


def _upstream(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Notes what the router is asked, and goes no further."""
    asked: list[dict[str, Any]] = []

    def select_experts(**arguments: Any) -> None:
        asked.append(arguments)
        raise RoutedError

    monkeypatch.setattr(layer.router, "select_experts", select_experts)
    return asked


def test_off_the_router_is_asked_as_ever(layer: Layer, logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _upstream(layer, monkeypatch)
    x, logits = _batch(6)
    ids = torch.zeros(6, dtype=torch.int64)
    with pytest.raises(RoutedError):
        layer(x, logits, ids)
    (arguments,) = asked
    assert arguments.keys() == {"hidden_states", "router_logits", "topk_indices_dtype", "input_ids"}
    assert arguments["hidden_states"] is x
    assert arguments["router_logits"] is logits
    assert arguments["topk_indices_dtype"] is None
    assert arguments["input_ids"] is ids
    assert logged == []


def test_a_choice_made_by_the_router_is_permuted_as_ever(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The experts take vLLM's quantized rows and its permutation where nobody left them a choice."""
    x, logits = _batch(6)
    chosen = torch.zeros(6, TOP_K), torch.zeros(6, TOP_K, dtype=torch.int32)
    quantized = x.to(torch.float8_e4m3fn), torch.ones(6, HIDDEN // 128)
    handed: list[dict[str, Any]] = []

    def permute(**arguments: Any) -> None:
        handed.append(arguments)
        raise RoutedError

    no_dp_ep = "vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep"
    monkeypatch.setattr(layer.router, "select_experts", lambda **arguments: chosen)
    monkeypatch.setattr(f"{no_dp_ep}.moe_kernel_quantize_input", lambda *args, **kwargs: quantized)
    monkeypatch.setattr(deep_gemm_moe, "get_mk_alignment_for_contiguous_layout", lambda: [128, 128])
    monkeypatch.setattr(deep_gemm_moe, "deepgemm_moe_permute", permute)
    with pytest.raises(RoutedError):
        layer(x, logits)
    (arguments,) = handed
    assert arguments["aq"] is quantized[0]
    assert arguments["aq_scale"] is quantized[1]
    assert arguments["topk_ids"] is chosen[1]
    assert arguments["aq_out"].shape == (4608, HIDDEN)


def _set(path: str, value: Any) -> Callable[[Layer, pytest.MonkeyPatch], None]:
    *places, name = path.split(".")

    def change(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
        target: Any = layer
        for place in places:
            target = getattr(target, place)
        monkeypatch.setattr(target, name, value, raising=False)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_set("router.scoring_func", "sigmoid"), "the router is another one"),
        (_set("router._hash_indices_table", torch.zeros(1)), "the router chooses by token"),
        (_set("router.num_fused_shared_experts", 1), "adds shared experts"),
        (_set("router.eplb_state", object()), "spread over ranks or balanced"),
        (_set("routed.expert_map", torch.zeros(1)), "spread over ranks or balanced"),
        (_set("router.capture_fn", print), "the chosen experts are recorded"),
        (_set("router._routing_replay_out", torch.zeros(1)), "the chosen experts are recorded"),
        (_set("routed.apply_router_weight_on_input", True), "weights are applied to activations"),
        (_set("experts._lora_context", object()), "LoRA"),
        (_set("router.top_k", 8), "a token goes to 8 experts"),
        (_set("router.renormalize", False), "not chosen by dsv4_topk"),
        (_set("router.e_score_correction_bias", None), "the router has no bias"),
        (_set("method.topk_indices_dtype", torch.int64), "not chosen by dsv4_topk"),
        (_set("kernel.impl.prepare_finalize", object()), "tokens are handed on by object"),
        (_set("kernel.impl.fused_experts", object()), "the experts are object"),
        (_set("method.moe_kernel", None), "the experts are NoneType"),
    ],
)
def test_on_what_does_not_fit_goes_to_the_router_with_one_line(
    on: Kernel,
    layer: Layer,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Layer, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    asked = _upstream(layer, monkeypatch)
    change(layer, monkeypatch)
    for tokens in (1, 6):
        with pytest.raises(RoutedError):
            layer(*_batch(tokens))
    assert len(asked) == 2
    assert on.calls == []
    assert layer.experts.front is None
    (line,) = logged
    assert why in line


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 1)])
def test_on_other_devices_keep_vllms_kernels(
    on: Kernel,
    layer: Layer,
    device: Callable[[int, int], None],
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
) -> None:
    _upstream(layer, monkeypatch)
    device(*capability)
    with pytest.raises(RoutedError):
        layer(*_batch(6))
    assert logged == ["VLLM_MOET_MOE_FRONT: upstream's kernels where the device is not of compute capability 12.0"]


@pytest.mark.parametrize(("tokens", "ours"), [(1, True), (16, True), (17, True), (64, True), (65, False), (200, False)])
def test_on_larger_batches_go_to_the_router(
    on: Kernel, layer: Layer, monkeypatch: pytest.MonkeyPatch, tokens: int, ours: bool
) -> None:
    asked = _upstream(layer, monkeypatch)
    x, logits = _batch(tokens)
    with contextlib.nullcontext() if ours else pytest.raises(RoutedError):
        layer(x, logits)
    assert (len(on.calls), len(asked)) == ((1, 0) if ours else (0, 1))


@pytest.mark.parametrize(
    ("x", "logits", "why"),
    [
        (torch.zeros(6, HIDDEN), torch.zeros(6, EXPERTS), "activations are torch.float32"),
        (torch.zeros(6, 384, dtype=torch.bfloat16), torch.zeros(6, EXPERTS), "activations have 384 columns"),
        (torch.zeros(6, HIDDEN, dtype=torch.bfloat16), torch.zeros(6, EXPERTS).bfloat16(), "logits are torch.bfloat16"),
        (torch.zeros(6, HIDDEN, dtype=torch.bfloat16), torch.zeros(6, 128), "there are 128 experts"),
        (torch.zeros(6, HIDDEN, dtype=torch.bfloat16), torch.zeros(EXPERTS, 6).T, "not contiguous"),
    ],
)
def test_on_tensors_of_other_kinds_go_to_the_router(
    on: Kernel,
    layer: Layer,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
    x: torch.Tensor,
    logits: torch.Tensor,
    why: str,
) -> None:
    _upstream(layer, monkeypatch)
    with pytest.raises(RoutedError):
        layer(x, logits)
    (line,) = logged
    assert why in line


def test_on_batch_invariance_keeps_vllms_kernels(
    on: Kernel, layer: Layer, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _upstream(layer, monkeypatch)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    with pytest.raises(RoutedError):
        layer(*_batch(6))
    (line,) = logged
    assert "batch invariance" in line


def test_a_batch_that_failed_half_way_leaves_nothing_to_the_next(
    on: Kernel, layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, logits = _batch(6)
    monkeypatch.setattr(layer.routed, "forward_modular", _raise)
    with pytest.raises(MemoryError):
        layer(x, logits)
    assert layer.experts.front is not None
    _upstream(layer, monkeypatch)
    with pytest.raises(RoutedError):
        layer(*_batch(65))
    assert layer.experts.front is None
    assert not layer.experts.expects_unquantized_inputs


def _raise(**arguments: Any) -> None:
    raise MemoryError
