"""Step mxfp8-wo-a: which kernel wo_a gets, what becomes of the weight, and of an attention layer's output."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import stand_ins
import torch
from vllm.model_executor.layers.quantization.utils.mxfp8_utils import dequant_mxfp8_to_bf16
from vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant import (
    _fused_inv_rope_fp8_quant_kernel_fake as outputs_of_the_quantizer,
)

SWITCH = "VLLM_MOET_MXFP8_WO_A"
GROUPED = "vllm.model_executor.kernels.linear.mxfp8.grouped_gemv"
LINEAR = "vllm.model_executor.kernels.linear"
O_PROJ = "vllm.models.deepseek_v4.nvidia.ops.o_proj"
V41_O_PROJ = "vllm.models.deepseek_v41.nvidia.ops.o_proj"

HEADS_A_GROUP, NOPE, ROPE, O_RANK = 8, 448, 64, 1024
K = HEADS_A_GROUP * (NOPE + ROPE)
UPSTREAMS = "EmulationMxfp8LinearKernel"
OURS = "GroupedGemvMxfp8BmmLinearKernel"

Fresh = Callable[..., ModuleType]


def imported(fresh: Fresh, switch: str | None) -> Any:
    """The module that projects an attention layer's output, and all that it takes kernels from, under the switch."""
    own = [GROUPED] if find_spec(GROUPED) else []
    return fresh(*own, LINEAR, O_PROJ, V41_O_PROJ, **{SWITCH: switch})


def chosen(rows: int, groups: int | None, k: int = K) -> Any:
    """The kernel that vLLM takes for a product by groups."""
    return sys.modules[LINEAR].init_mxfp8_linear_kernel(weight_shape=(rows, k), bmm_batch_size=groups)


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_on_it_is_ours_on_any_number_of_cards(fresh: Fresh, logged: list[str], groups: int) -> None:
    imported(fresh, "1")
    assert type(chosen(groups * O_RANK, groups)).__name__ == OURS
    assert not logged


@pytest.mark.parametrize("switch", [None, "0"], ids=["default", "off"])
def test_off_it_is_upstreams_and_needs_no_kernels(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, logged: list[str], switch: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    imported(fresh, switch)
    assert type(chosen(2 * O_RANK, 2)).__name__ == UPSTREAMS
    assert not logged


def test_on_without_the_kernels_nothing_is_served(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    with pytest.raises(ImportError, match="moet_kernels"):
        imported(fresh, "1")


@pytest.mark.parametrize(
    ("rows", "groups", "k", "reason"),
    [
        (2 * O_RANK, 2, 1536, "layer [2048, 1536] of 2 groups has another K than "),
        (2 * O_RANK, 2, 576, "layer [2048, 576] of 2 groups has another K than "),
        (2 * 160, 2, K, "layer [320, 4096] of 2 groups has groups whose rows are no multiple of 128"),
    ],
)
def test_other_shapes_are_upstreams_and_said_once(
    fresh: Fresh, logged: list[str], rows: int, groups: int, k: int, reason: str
) -> None:
    imported(fresh, "1")
    assert {type(chosen(rows, groups, k)).__name__ for _ in range(3)} == {UPSTREAMS}
    assert len(logged) == 1
    assert logged[0].startswith(f"{SWITCH}: upstream's path where {reason}")


@pytest.mark.parametrize(
    ("card", "theirs"), [((9, 0), UPSTREAMS), ((10, 0), "DeepGemmMxfp8BmmLinearKernel"), ((12, 1), UPSTREAMS)]
)
def test_other_cards_are_upstreams_and_said_once(
    fresh: Fresh, device: Callable[[int, int], None], logged: list[str], card: tuple[int, int], theirs: str
) -> None:
    imported(fresh, "1")
    device(*card)
    for groups in (1, 2):
        assert type(chosen(groups * O_RANK, groups)).__name__ == theirs
    assert logged == [f"{SWITCH}: upstream's path where the device is not of compute capability 12.0"]


def test_batch_invariance_is_upstreams(fresh: Fresh, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    imported(fresh, "1")
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert type(chosen(2 * O_RANK, 2)).__name__ == UPSTREAMS
    assert "batch invariance is asked for" in logged[0]


def _angles(positions: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(part[:, None].float() for part in cache[positions].chunk(2, dim=-1))


def unrotated(o: torch.Tensor, positions: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """Attention's output [M, heads, 512] with the rotation of its last 64 columns, in pairs, taken back: fp32."""
    cos, sin = _angles(positions, cache)
    rope = o[..., NOPE:].float()
    even, odd = rope[..., 0::2], rope[..., 1::2]
    turned = torch.stack([even * cos + odd * sin, odd * cos - even * sin], dim=-1).flatten(-2)
    return torch.cat([o[..., :NOPE].float(), turned], dim=-1)


def quantize(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A stand-in for upstream's quantizer, which writes to buffers that upstream's own description of it lays out."""
    out, scales = outputs_of_the_quantizer(*arguments)
    o, positions, cache, heads_per_group = arguments[:4]
    plain = unrotated(o, positions, cache).unflatten(1, (-1, heads_per_group)).flatten(2).transpose(0, 1)
    if not arguments[-1]:
        out.copy_(plain)
        return out, scales
    codes, exponents = stand_ins.mxfp8(plain.flatten(0, 1).contiguous())
    out.copy_(codes.view(out.shape))
    words = exponents.view(torch.int32).view(scales.shape)
    scales.copy_(words)
    return out, scales


class Attention(torch.nn.Module):
    """What projecting an attention layer's output needs of the layer; wo_a is loaded as the model loads it."""

    def __init__(self, groups: int, codes: torch.Tensor, scales: torch.Tensor) -> None:
        super().__init__()
        self.n_local_groups, self.n_local_heads = groups, groups * HEADS_A_GROUP
        self.nope_head_dim, self.rope_head_dim, self.o_lora_rank = NOPE, ROPE, codes.shape[0] // groups
        self._einsum_recipe, self._tma_aligned_scales = sys.modules[O_PROJ].compute_fp8_einsum_recipe(32)
        self.rotary_emb = torch.nn.Module()
        angles = torch.rand(4096, ROPE // 2, generator=torch.Generator().manual_seed(5)) * 6
        self.rotary_emb.cos_sin_cache = torch.cat([angles.cos(), angles.sin()], dim=-1)
        self.wo_a = torch.nn.Module()
        self.wo_a.weight = torch.nn.Parameter(codes, requires_grad=False)
        self.wo_a.weight_scale = torch.nn.Parameter(scales, requires_grad=False)
        self.wo_a.quant_method = torch.nn.Module()
        self.wo_a.quant_method.kernel = chosen(len(codes), groups, codes.shape[1])
        self.wo_a.quant_method.kernel.process_weights_after_loading(self.wo_a)
        self.wo_b = torch.nn.Module()
        self.wo_b.quant_method = None

    def _wo_b_proj(self, z: torch.Tensor) -> torch.Tensor:
        return z


def weights(groups: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.randn(groups * rank, K, generator=torch.Generator().manual_seed(3))
    # Scales that differ from row to row and from column to column.
    values *= torch.exp2(torch.arange(groups * rank)[:, None] % 7 - torch.arange(K)[None, :] // 32 % 5)
    return stand_ins.mxfp8(values.to(torch.bfloat16))


class Run:
    """An attention layer's output, projected under a value of the switch."""

    def __init__(self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch, switch: str, groups: int, rank: int) -> None:
        self.module = imported(fresh, switch)
        self.gemv: list[dict[str, Any]] = []
        self.flashinfer: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        monkeypatch.setattr(torch.ops.vllm, "fused_inv_rope_fp8_quant_kernel", quantize)
        if switch == "1":
            grouped: Any = sys.modules[GROUPED]
            stand_in = stand_ins.mxfp8_grouped_gemv(self.gemv)
            monkeypatch.setattr(grouped.linear_wo_a, "mxfp8_grouped_gemv", stand_in)
            gemm = stand_ins.flashinfer_gemm(self.flashinfer)
            monkeypatch.setattr(grouped.vllm_flashinfer, "mm_mxfp8", gemm, raising=False)
        self.codes, self.scales = weights(groups, rank)
        self.layer: Any = Attention(groups, self.codes.clone(), self.scales.clone())

    def inputs(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(rows)
        o = torch.randn(rows, self.layer.n_local_heads, NOPE + ROPE, generator=generator)
        o *= torch.exp2(torch.arange(rows) % 5)[:, None, None]
        return o.to(torch.bfloat16), torch.randint(0, 4096, (rows,), generator=generator)

    def __call__(self, rows: int) -> torch.Tensor:
        o, positions = self.inputs(rows)
        # Attention pads its heads.
        padded = torch.cat([o, torch.full_like(o, float("nan"))], dim=1)
        return self.module.dsv41_o_proj(self.layer, padded, positions)

    def expected(self, rows: int) -> torch.Tensor:
        """From the quantized operands, in float64: [M, G N]."""
        o, positions = self.inputs(rows)
        plain = unrotated(o, positions, self.layer.rotary_emb.cos_sin_cache).flatten(1)
        x = stand_ins.numbers(*stand_ins.mxfp8(plain)).unflatten(1, (self.layer.n_local_groups, K))
        weight = stand_ins.numbers(self.codes, self.scales).unflatten(0, (self.layer.n_local_groups, -1))
        return torch.einsum("mgk,gnk->mgn", x, weight).flatten(1)


@pytest.mark.parametrize(("groups", "rank"), [(1, 1024), (2, 128), (8, 128)])
def test_a_decode_step_is_one_call_of_the_gemv(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, groups: int, rank: int
) -> None:
    run = Run(fresh, monkeypatch, "1", groups, rank)
    for count, rows in enumerate((1, 6, 64), 1):
        stand_ins.close(run(rows), run.expected(rows))
        assert len(run.gemv) == count
    assert not run.flashinfer


@pytest.mark.parametrize("rows", [65, 128, 300])
def test_more_rows_are_a_call_a_group_of_flashinfers(fresh: Fresh, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    run = Run(fresh, monkeypatch, "1", 2, 128)
    stand_ins.close(run(rows), run.expected(rows))
    assert not run.gemv
    assert [options for _, options in run.flashinfer] == [{"out_dtype": torch.bfloat16, "backend": "cutlass"}] * 2


def test_the_weight_stays_in_mxfp8(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(fresh, monkeypatch, "1", 2, 1024)
    weight, scale = run.layer.wo_a.weight, run.layer.wo_a.weight_scale
    assert weight.dtype == torch.float8_e4m3fn
    assert torch.equal(weight.view(torch.uint8).view(2048, K), run.codes.view(torch.uint8))
    assert weight.nbytes + scale.nbytes == 2048 * K * 33 // 32
    before = weight.data_ptr(), scale.data_ptr()
    # vLLM processes weights again when a model is loaded anew into the same layers.
    run.layer.wo_a.quant_method.kernel.process_weights_after_loading(run.layer.wo_a)
    assert before == (run.layer.wo_a.weight.data_ptr(), run.layer.wo_a.weight_scale.data_ptr())


def test_off_an_output_is_upstreams(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(fresh, monkeypatch, "0", 2, 128)
    assert torch.equal(run.layer.wo_a.weight, dequant_mxfp8_to_bf16(run.codes, run.scales))
    o, positions = run.inputs(6)
    x = unrotated(o, positions, run.layer.rotary_emb.cos_sin_cache).to(torch.bfloat16).view(6, 2, K)
    expected = torch.bmm(x.transpose(0, 1), run.layer.wo_a.weight.view(2, 128, K).transpose(1, 2)).transpose(0, 1)
    assert torch.equal(run(6), expected.flatten(1))


def vllms_kernel(*arguments: Path, **environment: str) -> str:
    """What a run of quantize_attention.py prints."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("quantize_attention.py"), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def test_vllms_quantizer_writes_what_the_stand_in_does(tmp_path: Path) -> None:
    """The layouts above are the kernel's own: it runs here, in Triton's interpreter."""
    cases = []
    for rows, groups in ((1, 1), (6, 2), (9, 1)):
        generator = torch.Generator().manual_seed(rows)
        o = torch.randn(rows, groups * HEADS_A_GROUP, NOPE + ROPE, generator=generator).to(torch.bfloat16)
        # Attention pads its heads.
        o = torch.cat([o, torch.full_like(o, float("nan"))], dim=1)[:, : groups * HEADS_A_GROUP]
        angles = torch.rand(64, ROPE // 2, generator=generator) * 6
        cache = torch.cat([angles.cos(), angles.sin()], dim=-1)
        positions = torch.randint(0, 64, (rows,), generator=generator)
        padded = -(-rows // 4) * 4
        shape = (HEADS_A_GROUP, 32, 16, NOPE, ROPE // 2, True, 448.0, padded, rows, groups, K, K // 128, True)
        cases.append((o, positions, cache, *shape))
    torch.save(cases, tmp_path / "inputs")
    vllms_kernel(tmp_path / "inputs", tmp_path / "outputs", TRITON_INTERPRET="1")
    for case, (codes, words) in zip(cases, torch.load(tmp_path / "outputs"), strict=True):
        expected_codes, expected_words = quantize(*case)
        assert (codes.stride(), words.stride()) == (expected_codes.stride(), expected_words.stride())
        assert torch.equal(words, expected_words)
        # Sums of two products may be rounded once or twice: an E4M3 step at most.
        off = (codes.view(torch.uint8).int() - expected_codes.view(torch.uint8).int()).abs()
        assert int(off.max()) <= 1
        assert float((off > 0).float().mean()) < 1e-3


def test_vllms_quantizer_compiles_for_sm120() -> None:
    assert vllms_kernel().splitlines()[-1] == "True"
