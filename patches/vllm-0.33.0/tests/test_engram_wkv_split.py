"""Step engram-wkv-split: Engram's projection by the whole weight, or by a rank's views of it and an all-gather."""

import multiprocessing
import socket
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import stand_ins
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
from vllm.model_executor.kernels.linear.mxfp8 import flashinfer as mxfp8
from vllm.model_executor.kernels.linear.mxfp8.emulation import EmulationMxfp8LinearKernel
from vllm.model_executor.kernels.linear.mxfp8.Mxfp8LinearKernel import Mxfp8LinearLayerConfig
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.utils import flashinfer

SWITCH = "VLLM_MOET_ENGRAM_WKV_SPLIT"
NAME = "vllm.models.deepseek_v41.common.engram"
RANKS, HIDDEN, COPIES = 4, 256, 4
WIDTH = HIDDEN * (COPIES + 1) * 2
COLUMNS, HEAD = 24, 256
K = COLUMNS * HEAD

Fresh = Callable[..., ModuleType]


def weight() -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 codes [2560, 6144] and UE8M0 scales, small whole numbers: every order of sums is exact."""
    generator = torch.Generator().manual_seed(5)
    codes = torch.randint(-2, 3, (WIDTH, K), generator=generator).to(torch.float8_e4m3fn)
    return codes, torch.randint(126, 129, (WIDTH, K // 32), generator=generator, dtype=torch.uint8)


def rows(count: int) -> torch.Tensor:
    """What Engram's tables gave for a batch: bfloat16 [count, 6144]."""
    return torch.randint(-2, 3, (count, K), generator=torch.Generator().manual_seed(count)).to(torch.bfloat16)


class Group:
    """A tensor-parallel group over gloo, with the all-gather of vLLM's own communicator."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank_in_group, self.world_size = rank, size
        self.gathers = 0

    def all_gather(self, tensor: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """All ranks' tensors one behind the other along `dim`."""
        self.gathers += 1
        everyone = torch.distributed.group.WORLD
        communicator = DeviceCommunicatorBase(everyone, torch.device("cpu"), everyone)
        return communicator.all_gather(tensor, dim)


def linear(replicated: bool, kernel: type[Any], group: Any) -> Any:
    """wkv after loading, sharded over the group or whole."""
    layer = ColumnParallelLinear(
        K, WIDTH, bias=False, gather_output=True, return_bias=False, prefix="wkv", disable_tp=replicated
    )
    codes, scales = weight()
    ranks, rank = (1, 0) if replicated else (group.world_size, group.rank_in_group)
    layer.weight = torch.nn.Parameter(codes.chunk(ranks)[rank].clone(), requires_grad=False)
    layer.weight_scale = torch.nn.Parameter(scales.chunk(ranks)[rank].clone(), requires_grad=False)
    made = kernel(Mxfp8LinearLayerConfig(weight_shape=tuple(layer.weight.shape)))
    made.process_weights_after_loading(layer)
    layer.quant_method = SimpleNamespace(kernel=made, apply=made.apply_weights)
    return layer


def member(rank: int, port: int, module: Any, counts: list[int], results: Any) -> None:
    """One of four ranks: for each batch, whether both ways have the same bits, and the all-gathers of either."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    group = Group(rank, RANKS)
    parallel_state._TP = group
    upstream = linear(False, EmulationMxfp8LinearKernel, group)
    layer = SimpleNamespace(wkv=linear(True, EmulationMxfp8LinearKernel, group), wkv_replicated=True)
    found = []
    for count in counts:
        x = rows(count)
        expected = upstream(x)
        before = group.gathers
        result = module.Engram._project(layer, x, count)
        found.append((torch.equal(result, expected), tuple(result.shape), group.gathers - before, before))
    results.put((rank, found))
    torch.distributed.destroy_process_group()


def test_four_ranks_get_what_upstream_gathers(fresh: Fresh) -> None:
    module: Any = fresh(NAME, **{SWITCH: "1"})
    counts = [1, 47, 48, 128, 129, 300]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    forked = multiprocessing.get_context("fork")
    results = forked.Queue()
    members = [forked.Process(target=member, args=(rank, port, module, counts, results)) for rank in range(RANKS)]
    for process in members:
        process.start()
    try:
        found = dict(results.get(timeout=240) for _ in members)
    finally:
        for process in members:
            process.join(10)
            process.kill()
    for rank in range(RANKS):
        same, shapes, gathers, _ = zip(*found[rank], strict=True)
        assert all(same)
        assert list(shapes) == [(count, WIDTH) for count in counts]
        # The whole weight for 48 to 128 rows; else as many all-gathers as upstream, one.
        assert list(gathers) == [1, 1, 0, 0, 1, 1]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """FlashInfer's GEMM and quantizer, which a CPU does not have, and the GEMM's calls."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(flashinfer, "mm_mxfp8", stand_ins.flashinfer_gemm(calls))

    def quantized(x: torch.Tensor, is_sf_swizzled_layout: bool) -> tuple[torch.Tensor, torch.Tensor]:
        from vllm.model_executor.layers.quantization.utils.mxfp8_utils import _mxfp8_e4m3_quantize_torch

        codes, scales = _mxfp8_e4m3_quantize_torch(x, is_sf_swizzled_layout)
        return codes, scales

    monkeypatch.setattr(mxfp8, "mxfp8_e4m3_quantize", quantized)
    return calls


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_reads_its_rows_in_place(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, kernel: list[tuple[tuple[Any, ...], dict[str, Any]]], rank: int
) -> None:
    """Codes and F8_128x4 scales are views of the whole weight, and what upstream's rank has."""
    module: Any = fresh(NAME, **{SWITCH: "1"})
    group = SimpleNamespace(rank_in_group=rank, world_size=RANKS, all_gather=lambda tensor, dim: tensor)
    monkeypatch.setattr(parallel_state, "_TP", group)
    whole = linear(True, mxfp8.FlashInferCutlassMxfp8LinearKernel, group)
    result = module.Engram._project(SimpleNamespace(wkv=whole, wkv_replicated=True), rows(6), 6)
    sharded = linear(False, mxfp8.FlashInferCutlassMxfp8LinearKernel, group)
    assert torch.equal(result, sharded.quant_method.apply(sharded, rows(6)))
    (_, codes, _, scales), _ = kernel[0]
    part = WIDTH // RANKS
    assert codes.data_ptr() == whole.weight.data_ptr() + rank * part * K
    assert scales.data_ptr() == whole.weight_scale.data_ptr() + rank * part * K // 32
    assert torch.equal(scales, sharded.weight_scale)


def test_the_whole_weight_serves_a_kernel_without_known_views(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    module: Any = fresh(NAME, **{SWITCH: "1"})
    group = SimpleNamespace(rank_in_group=1, world_size=RANKS, all_gather=None)
    monkeypatch.setattr(parallel_state, "_TP", group)

    class Other(EmulationMxfp8LinearKernel):  # type: ignore[misc]
        """Somebody else's layout."""

    whole = linear(True, Other, group)
    layer = SimpleNamespace(wkv=whole, wkv_replicated=True)
    x = rows(6)
    assert torch.equal(module.Engram._project(layer, x, 6), whole(x))
    module.Engram._project(layer, x, 6)
    assert logged == [f"{SWITCH}: the whole weight for all batches where wkv is computed by Other"]


@pytest.mark.parametrize(
    ("switch", "card", "ranks", "condition", "whole"),
    [
        (None, (12, 0), 4, None, False),
        ("0", (12, 0), 4, None, False),
        ("1", (12, 0), 4, None, True),
        ("1", (12, 0), 1, None, False),
        ("1", (12, 0), 4, "half a tile", False),
        ("1", (12, 1), 4, None, False),
        ("1", (10, 0), 4, None, False),
        ("1", (12, 0), 4, "batch invariance", False),
        ("1", (12, 0), 4, "LoRA", False),
    ],
)
def test_where_every_rank_holds_the_whole_weight(
    fresh: Fresh,
    config: VllmConfig,
    device: Callable[[int, int], None],
    monkeypatch: pytest.MonkeyPatch,
    switch: str | None,
    card: tuple[int, int],
    ranks: int,
    condition: str | None,
    whole: bool,
) -> None:
    """As the model makes the layer: wkv's weight is whole, or a rank's part as upstream has it."""
    device(*card)
    module: Any = fresh(NAME, **{SWITCH: switch})
    group = SimpleNamespace(rank_in_group=0, world_size=ranks)
    monkeypatch.setattr(parallel_state, "_TP", group)
    monkeypatch.setattr(module.Engram, "_create_embedding", lambda *_: None)
    monkeypatch.setattr(module.Engram, "_init_staging", lambda *_: None)
    if condition == "batch invariance":
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setattr(config, "lora_config", object() if condition == "LoRA" else None)
    hidden = 256 if condition == "half a tile" else 512
    text = SimpleNamespace(hidden_size=hidden, hc_mult=COPIES, rms_norm_eps=1e-6)
    layout = SimpleNamespace(max_ngram_size=3, n_heads=4, head_dim=64)
    with set_current_vllm_config(config):
        layer = module.Engram(text, None, layout, 0, False, "engram")
    assert layer.wkv.weight.shape[0] == 5 * hidden // (1 if whole else ranks)
    assert layer.wkv_replicated is whole


@pytest.fixture(scope="module")
def config(serve_config: Callable[..., VllmConfig]) -> VllmConfig:
    """The line's, on four cards."""
    return serve_config()
