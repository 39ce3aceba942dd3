"""Step mhc-overlap: the gate, the order of the two streams, and the kernels that run on them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from streams import Stream, Streams, storage
from vllm.config import VllmConfig
from vllm.model_executor.kernels.mhc import warmup
from vllm.models.deepseek_v41.nvidia import model
from vllm.models.deepseek_v41.nvidia.ops import mhc
from vllm.utils import deep_gemm

SWITCH = "VLLM_MOET_MHC_OVERLAP"
NAME = "vllm.models.deepseek_v41.nvidia.ops.mhc"
HIDDEN, COPIES = 5120, 4

Fresh = Callable[..., ModuleType]
Configure = Callable[..., VllmConfig]


@pytest.fixture(scope="module")
def config(serve_config: Configure) -> VllmConfig:
    """The line's, on four cards."""
    return serve_config()


@pytest.mark.parametrize(
    ("switch", "card", "opens"),
    [
        (None, (12, 0), False),
        ("0", (12, 0), False),
        ("1", (12, 0), True),
        ("1", (12, 1), False),
        ("1", (9, 0), False),
        ("0", (10, 0), True),
        ("1", (10, 3), True),
    ],
)
def test_the_gate(
    fresh: Fresh,
    config: VllmConfig,
    device: Callable[[int, int], None],
    monkeypatch: pytest.MonkeyPatch,
    switch: str | None,
    card: tuple[int, int],
    opens: bool,
) -> None:
    device(*card)
    module: Any = fresh(NAME, **{SWITCH: switch})
    monkeypatch.setattr(module, "is_deep_gemm_supported", lambda: True)
    assert module.supports_mhc_overlap(config) is opens


@pytest.mark.parametrize("condition", ["batch invariance", "ubatches", "no DeepGEMM"])
def test_conditions_keep_the_gate_shut(
    fresh: Fresh, config: VllmConfig, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    module: Any = fresh(NAME, **{SWITCH: "1"})
    assert module.supports_mhc_overlap(config)
    if condition == "batch invariance":
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    elif condition == "ubatches":
        monkeypatch.setattr(config.parallel_config, "enable_dbo", True)
    else:
        monkeypatch.setattr(module, "is_deep_gemm_supported", lambda: False)
    assert not module.supports_mhc_overlap(config)


@pytest.mark.parametrize(("card", "fuses"), [((10, 0), True), ((12, 0), False)])
def test_no_all_reduce_is_fused_into_the_boundary(
    config: VllmConfig,
    device: Callable[[int, int], None],
    monkeypatch: pytest.MonkeyPatch,
    card: tuple[int, int],
    fuses: bool,
) -> None:
    """Not even where a communicator says that it has NVLink multicast."""
    device(*card)
    communicator = SimpleNamespace(ca_comm=SimpleNamespace(mnnvl_lamport_ag_multicast_ptr=1))
    monkeypatch.setattr(mhc, "get_tp_group", lambda: SimpleNamespace(device_communicator=communicator))
    assert mhc.supports_mhc_all_reduce(config) is fuses


class Layers:
    """Three of the model's layers, the second with Engram, by the model's own forward; kernels are stand-ins.

    A stand-in computes nothing: it says what the kernel in its place reads and writes.
    """

    def __init__(self, streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams = streams
        self.weights: list[torch.Tensor] = []
        self.piecewise = False
        monkeypatch.setattr(mhc, "mhc_post_tilelang", self.post)
        monkeypatch.setattr(model, "mhc_post_tilelang", self.post)
        monkeypatch.setattr(warmup, "MHC_PRE_NORM_KERNEL", self.epilogue)
        monkeypatch.setattr(deep_gemm, "tf32_hc_prenorm_gemm", self.projection)
        monkeypatch.setattr(mhc, "mhc_fused_post_pre_delayed_tilelang", self.whole)
        monkeypatch.setattr(model, "mhc_pre_delayed_tilelang", self.whole_pre)
        monkeypatch.setattr(model, "in_piecewise_cudagraph", lambda: self.piecewise)

    def new(self, name: str, shape: tuple[int, ...], *reads: torch.Tensor, dtype: Any = torch.bfloat16) -> torch.Tensor:
        """A tensor that a kernel writes."""
        out = torch.zeros(shape, dtype=dtype)
        self.streams.kernel(name, reads, [out])
        return out

    def post(self, x: Any, residual: Any, post_mix: Any, res_mix: Any) -> torch.Tensor:
        return self.new("post", tuple(residual.shape), x, residual, post_mix, res_mix)

    def projection(self, x: Any, fn: Any, mix: Any, squares: Any, splits: int) -> None:
        assert mix.shape[0] == squares.shape[0] == splits
        self.streams.kernel("projection", [x, fn], [mix, squares])

    def epilogue(self, *tensors: Any, split_mode: str, use_pre_mix_in: bool, **others: Any) -> None:
        del others
        mix, squares, scale, base, residual, post, comb, out, norm, pre_in, pre_out, _ = tensors
        if split_mode == "stats":
            self.streams.kernel("stats", [mix, squares, scale, base], [post, comb, pre_out])
        else:
            assert split_mode == "input"
            self.streams.kernel("input", [residual, norm, *([pre_in] if use_pre_mix_in else [])], [out])

    def whole_pre(self, residual: Any, fn: Any, *others: Any, pre_mix: Any = None, **rest: Any) -> tuple[Any, ...]:
        del others, rest
        rows = len(residual)
        read = [residual, fn, *([pre_mix] if pre_mix is not None else [])]
        shapes = [(rows, COPIES, 1), (rows, COPIES, COPIES), (rows, HIDDEN), (rows, COPIES)]
        out = [torch.zeros(shape) for shape in shapes]
        self.streams.kernel("whole", read, out)
        return tuple(out)

    def whole(self, x: Any, residual: Any, post: Any, comb: Any, fn: Any, *others: Any, **rest: Any) -> tuple[Any, ...]:
        mixed = self.post(x, residual, post, comb)
        return mixed, *self.whole_pre(mixed, fn, *others, **rest), x.new_empty(0)

    def sublayer(self, name: str) -> Callable[..., torch.Tensor]:
        """Attention or experts, which end with the all-reduce of their output."""

        def run(*tensors: Any) -> torch.Tensor:
            (x,) = (value for value in tensors if isinstance(value, torch.Tensor) and value.shape[-1] == HIDDEN)
            y = self.new(name, tuple(x.shape), x)
            self.streams.kernel("all-reduce", [y], [y])
            return y

        return run

    def layer(self, engram: bool) -> SimpleNamespace:
        """A layer of the model, as its forward knows it."""

        def weight(*shape: int) -> torch.Tensor:
            made = torch.zeros(shape)
            self.weights.append(made)
            return made

        class Attention:
            gemm_rs = None

            def __call__(this, *tensors: Any) -> torch.Tensor:  # noqa: N805
                return self.sublayer("attention")(*tensors[1:])

        norms = {name: SimpleNamespace(weight=weight(HIDDEN), variance_epsilon=1e-6) for name in ("attn", "ffn")}
        injected = type("Injected", (), {"layer_hash_index": 0, "__call__": lambda _, r, h, m: self._inject(r, h)})
        return SimpleNamespace(
            mhc_stream=self.streams.side,
            fuse_mhc_all_reduce=False,
            use_sequence_parallel=False,
            engram=injected() if engram else None,
            rms_norm_eps=1e-6,
            hc_eps=1e-6,
            hc_mult=COPIES,
            hc_post_alpha=2.0,
            hc_sinkhorn_iters=20,
            attn=Attention(),
            ffn=self.sublayer("experts"),
            hc_attn_fn=weight(24, COPIES * HIDDEN),
            hc_attn_fn_broadcast=weight(24, HIDDEN),
            hc_ffn_fn=weight(24, COPIES * HIDDEN),
            hc_attn_scale=weight(3),
            hc_attn_base=weight(24),
            hc_ffn_scale=weight(3),
            hc_ffn_base=weight(24),
            attn_norm=norms["attn"],
            ffn_norm=norms["ffn"],
        )

    def _inject(self, residual: torch.Tensor, hashes: torch.Tensor) -> torch.Tensor:
        return self.new("engram", tuple(residual.shape), residual, hashes)

    def run(self, rows: int) -> None:
        """A step of the model: three layers, and the last boundary's post."""
        forward = model.DeepseekV4DecoderLayer.forward
        x: Any = torch.zeros(rows, HIDDEN, dtype=torch.bfloat16)
        hashes = torch.zeros(rows, 1, 24, dtype=torch.int32)
        pre_mix = post = comb = residual = None
        for engram in (False, True, False):
            x, residual, post, comb, pre_mix, _ = forward(
                self.layer(engram), x, torch.arange(rows), None, pre_mix, post, comb, residual, hashes
            )
        self.post(x, residual, post, comb)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    # What an RTX PRO 6000 has: the projection is split by it.
    card = SimpleNamespace(multi_processor_count=188)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: card)
    return Streams(monkeypatch)


@pytest.mark.parametrize("rows", [1, 8, 9, 16])
def test_coefficients_are_ready_where_they_are_read(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    layers = Layers(streams, monkeypatch)
    layers.run(rows)
    assert not streams.races
    assert streams.names(streams.side) == ["projection", "stats"] * 6
    main = streams.names(streams.main)
    # Six sublayers, each with its input before it, and every all-reduce on the caller's stream.
    assert [main.count(name) for name in ("input", "attention", "experts", "all-reduce")] == [6, 3, 3, 6]
    assert "whole" not in main


@pytest.mark.parametrize(("deaf", "late"), [("main", "post"), ("side", "projection")])
def test_without_a_wait_there_is_a_race(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, deaf: str, late: str
) -> None:
    """So that the test before sees what it looks for."""
    wait = Stream.wait_stream

    def forgets(self: Stream, other: Stream) -> None:
        if self.name != deaf:
            wait(self, other)

    monkeypatch.setattr(Stream, "wait_stream", forgets)
    Layers(streams, monkeypatch).run(6)
    assert any(race.startswith(f"{late} on {deaf} is not after") for race in streams.races)


@pytest.mark.parametrize("rows", [6, 16])
def test_memory_is_not_given_away_while_the_other_stream_uses_it(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Beside weights and coefficients the other stream touches the streams' mix and the projection's sums."""
    layers = Layers(streams, monkeypatch)
    kept: list[int] = []
    epilogue = layers.epilogue

    def watch(*tensors: Any, split_mode: str, **rest: Any) -> None:
        if split_mode == "stats":
            kept.extend(storage(tensors[place]) for place in (5, 6, 10))
        epilogue(*tensors, split_mode=split_mode, **rest)

    monkeypatch.setattr(warmup, "MHC_PRE_NORM_KERNEL", watch)
    layers.run(rows)
    assert len(kept) == 18
    weights = {storage(weight) for weight in layers.weights}
    assert streams.beside - streams.recorded == weights & streams.beside | set(kept)
    assert len(streams.recorded) == 18


@pytest.mark.parametrize("why", ["17 rows", "eager", "piecewise"])
def test_other_batches_and_graphs_are_upstreams(streams: Streams, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    layers = Layers(streams, monkeypatch)
    streams.capturing = why != "eager"
    layers.piecewise = why == "piecewise"
    layers.run(17 if why == "17 rows" else 6)
    assert not streams.names(streams.side)
    assert streams.names(streams.main).count("whole") == 6


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """What runs on the two streams, compiled for sm_120a."""
    target = json.dumps({"kind": "cuda", "arch": "sm_120a"})
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("compile_mhc_kernels.py")],
        env={**os.environ, "TILELANG_DEFAULT_TARGET": target},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("mode", "writes"), [("stats", "comb_mix["), ("input", "layer_input + ")])
def test_the_halves_of_the_kernel_compile_for_sm120(compiled: dict[str, Any], mode: str, writes: str) -> None:
    source = compiled[mode]
    assert compiled["splits"] == 16
    assert writes in source
    arguments, _, body = source.rpartition("mhc_pre_big_fuse_with_norm_tilelang_kernel(")[2].partition("{")
    names = re.findall(r"\*\s*(?:__restrict__\s+)?(\w+)", arguments)
    # Launched as dependents, both wait before they touch what they are handed.
    before, wait, after = body.partition("cudaGridDependencySynchronize")
    assert wait and {"residual" if mode == "input" else "gemm_out_mul"} <= set(names)
    assert not [name for name in names if re.search(rf"\b{name}\b", before)]
    assert all(re.search(rf"\b{name}\b", after) for name in names)


def test_deepgemms_projection_compiles_for_sm120(compiled: dict[str, Any]) -> None:
    assert compiled["projection"] > 10_000
