"""Step skinny-gemm: the indexer's weights_proj and wk and the router's gate, at the places that call them."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import stand_ins
import torch
from vllm.distributed import parallel_state
from vllm.model_executor.layers import linear
from vllm.model_executor.layers.fused_moe.router import gate_linear
from vllm.models.deepseek_v41 import attention

SWITCH = "VLLM_MOET_SKINNY_GEMM"
MODULE = "vllm.model_executor.kernels.linear.moet_skinny_gemm"
HIDDEN, LATENT = 5120, 512

Fresh = Callable[..., ModuleType]


@pytest.fixture(autouse=True)
def _one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SimpleNamespace(rank_in_group=0, world_size=1)
    monkeypatch.setattr(parallel_state, "get_tp_group", lambda: group)


def filled(layer: Any, seed: int) -> Any:
    """A layer of the model with weights."""
    layer.weight.data.copy_(torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed)) / 64)
    return layer


def replicated(n: int, k: int, prefix: str) -> Any:
    return filled(linear.ReplicatedLinear(k, n, bias=False, params_dtype=torch.bfloat16, prefix=prefix), n)


def rows(count: int, k: int) -> torch.Tensor:
    return torch.randn(count, k, generator=torch.Generator().manual_seed(count)).to(torch.bfloat16)


class Model:
    """The three layers where the model calls them, under a value of the switch; the operator is a stand-in."""

    def __init__(self, fresh: Fresh, monkeypatch: pytest.MonkeyPatch, switch: str | None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.stored: list[torch.Tensor] = []
        self.mm: list[tuple[torch.Tensor, ...]] = []
        if find_spec(MODULE):
            module: Any = fresh(MODULE, **{SWITCH: switch})
            monkeypatch.setattr(gate_linear, "skinny_gemm", module.skinny_gemm)
            monkeypatch.setattr(attention, "skinny_linear", module.skinny_linear)
            if switch == "1":
                monkeypatch.setattr(module.linear_bf16, "skinny_gemm", stand_ins.skinny_gemm(self.calls))
        monkeypatch.setattr(torch, "mm", self._mm)
        metadata = {"k_cache": SimpleNamespace(slot_mapping=None)}
        monkeypatch.setattr(attention, "get_forward_context", lambda: SimpleNamespace(attn_metadata=metadata))
        monkeypatch.setattr(attention, "indexer_k_norm_rope_store", lambda k, *others: self.stored.append(k))
        self.weights_proj = replicated(32, HIDDEN, "weights_proj")
        self.wk = replicated(128, LATENT, "wk")
        gate = gate_linear.GateLinear(HIDDEN, 384, out_dtype=torch.float32, params_dtype=torch.bfloat16, prefix="gate")
        self.gate = filled(gate, 384)

    def _mm(self, x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        """The GEMM with another result type, which a CPU does not have."""
        self.mm.append((x, weight))
        return (x.double() @ weight.double()).to(out_dtype)

    def project_weights(self, x: torch.Tensor) -> torch.Tensor:
        """The indexer's weights for each head, from the layer's input: bfloat16 [M, 32]."""
        layer = SimpleNamespace(
            aux_stream_list=None,
            compressor=None,
            indexer=SimpleNamespace(weights_proj=self.weights_proj),
            ln_events=[None] * 4,
            _fused_wqa_wkv_gemm=lambda hidden: None,
        )
        _, _, weights = attention.DeepseekV4Attention._run_parallel_input_projections(layer, x)
        return weights

    def project_keys(self, latent: torch.Tensor) -> torch.Tensor:
        """The indexer's keys before their normalization, from the compressor's latent: bfloat16 [M, 128]."""
        indexer = SimpleNamespace(
            wk=self.wk,
            owns_k=True,
            k_cache=SimpleNamespace(prefix="k_cache", kv_cache=None),
            k_norm=SimpleNamespace(weight=None, variance_epsilon=0),
            compress_ratio=4,
            use_fp4_kv=False,
        )
        rotary = SimpleNamespace(cos_sin_cache=None)
        attention.DeepseekV4Indexer._produce_k(indexer, latent, torch.arange(len(latent)), rotary)
        return self.stored[-1]

    def route(self, x: torch.Tensor) -> torch.Tensor:
        """The router's logits: float32 [M, 384]."""
        logits, _ = self.gate(x)
        return logits


@pytest.fixture
def model(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Model]:
    return lambda switch: Model(fresh, monkeypatch, switch)


# How the model calls a layer, the layer, its K, and whether the launch may be dependent.
PLACES = [
    pytest.param("project_weights", "weights_proj", HIDDEN, False, id="weights_proj"),
    pytest.param("project_keys", "wk", LATENT, True, id="wk"),
    pytest.param("route", "gate", HIDDEN, True, id="gate"),
]


@pytest.mark.parametrize(("place", "name", "k", "dependent"), PLACES)
def test_up_to_16_rows_are_one_launch(
    model: Callable[[str | None], Model], place: str, name: str, k: int, dependent: bool
) -> None:
    on = model("1")
    weight = getattr(on, name).weight
    out_dtype = torch.float32 if name == "gate" else torch.bfloat16
    for count in (1, 6, 16):
        x = rows(count, k)
        result = getattr(on, place)(x)
        assert result.dtype == out_dtype
        expected = (x.double() @ weight.double().T).to(out_dtype)
        torch.testing.assert_close(result, expected, rtol=2**-7, atol=1e-5)
        (call,) = on.calls
        on.calls.clear()
        assert call["tensors"][0] is x
        assert call["tensors"][1] is weight
        assert (call["out_dtype"], call["dependent"]) == (out_dtype, dependent)
    assert not on.mm


@pytest.mark.parametrize(("place", "name", "k", "dependent"), PLACES)
def test_more_rows_are_upstreams(
    model: Callable[[str | None], Model], logged: list[str], place: str, name: str, k: int, dependent: bool
) -> None:
    x = rows(17, k)
    expected = getattr(model("0"), place)(x)
    on = model("1")
    assert torch.equal(getattr(on, place)(x), expected)
    getattr(on, place)(rows(300, k))
    assert not on.calls
    assert len(on.mm) == 2 * (name == "gate")
    assert logged == [f"{SWITCH}: upstream's GEMM where a batch has no row, or more than 16"]


@pytest.mark.parametrize("card", [(9, 0), (10, 0), (12, 1)])
@pytest.mark.parametrize("place", ["project_weights", "project_keys"])
def test_other_cards_are_upstreams(
    model: Callable[[str | None], Model],
    device: Callable[[int, int], None],
    logged: list[str],
    place: str,
    card: tuple[int, int],
) -> None:
    x = rows(6, LATENT if place == "project_keys" else HIDDEN)
    device(*card)
    expected = getattr(model("0"), place)(x)
    on = model("1")
    assert torch.equal(getattr(on, place)(x), expected)
    assert not on.calls
    assert logged == [f"{SWITCH}: upstream's GEMM where the device is not of compute capability 12.0"]


def test_batch_invariance_is_upstreams(
    model: Callable[[str | None], Model], monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setattr(linear, "linear_batch_invariant", lambda x, weight, bias: x @ weight.T)
    on = model("1")
    on.project_weights(rows(6, HIDDEN))
    on.project_keys(rows(6, LATENT))
    on.route(rows(6, HIDDEN))
    assert not on.calls
    assert len(logged) == 1
    assert "batch invariance is asked for" in logged[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x[:, :HIDDEN].float(), "layer [32, 5120] gets an activation of torch.float32, not torch.bfloat16"),
        (lambda x: x[:, 1 : HIDDEN + 1], "layer [32, 5120] gets an activation whose rows do not begin at multiples"),
        (lambda x: x[:0, :HIDDEN], "a batch has no row, or more than 16"),
    ],
    ids=["float32", "misaligned", "empty"],
)
def test_other_activations_are_upstreams(
    model: Callable[[str | None], Model], monkeypatch: pytest.MonkeyPatch, logged: list[str], change: Any, reason: str
) -> None:
    on = model("1")
    monkeypatch.setattr(on.weights_proj, "forward", lambda x: (x, None))
    x = change(rows(6, HIDDEN + 8))
    assert on.project_weights(x) is x
    assert not on.calls
    assert logged[0].startswith(f"{SWITCH}: upstream's GEMM where {reason}")


def test_a_wrapped_layer_is_called_as_it_is(model: Callable[[str | None], Model], logged: list[str]) -> None:
    class Wrapper(torch.nn.Module):
        """What LoRA puts in a layer's place."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.weight, self.prefix = inner, inner.weight, "layers.3.indexer.weights_proj"

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
            return self.inner(x)[0] + 1, None

    on = model("1")
    x = rows(6, HIDDEN)
    expected = on.weights_proj(x)[0] + 1
    on.weights_proj = Wrapper(on.weights_proj)
    assert torch.equal(on.project_weights(x), expected)
    on.project_weights(x)
    assert not on.calls
    assert logged == [f"{SWITCH}: upstream's GEMM where weights_proj is wrapped, quantized or has a bias"]


def test_while_tracing_it_is_upstreams(model: Callable[[str | None], Model], monkeypatch: pytest.MonkeyPatch) -> None:
    on = model("1")
    with monkeypatch.context() as tracing:
        tracing.setattr(torch.compiler, "is_compiling", lambda: True)
        on.route(rows(6, HIDDEN))
    assert (len(on.calls), len(on.mm)) == (0, 1)
    on.route(rows(6, HIDDEN))
    assert (len(on.calls), len(on.mm)) == (1, 1)


@pytest.mark.parametrize("switch", [None, "0"], ids=["default", "off"])
def test_off_it_is_upstreams_and_needs_no_kernels(
    model: Callable[[str | None], Model], monkeypatch: pytest.MonkeyPatch, logged: list[str], switch: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    off = model(switch)
    x, latent = rows(6, HIDDEN), rows(6, LATENT)
    assert torch.equal(off.project_weights(x), torch.nn.functional.linear(x, off.weights_proj.weight))
    assert torch.equal(off.project_keys(latent), torch.nn.functional.linear(latent, off.wk.weight))
    off.route(x)
    assert off.mm[0][0] is x
    assert off.mm[0][1].data_ptr() == off.gate.weight.data_ptr()
    assert not logged


def test_on_without_the_kernels_nothing_is_served(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moet_kernels.dispatch", None)
    with pytest.raises(ImportError, match="moet_kernels"):
        fresh(MODULE, **{SWITCH: "1"})
