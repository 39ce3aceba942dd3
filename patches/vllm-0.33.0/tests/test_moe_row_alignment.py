"""Step moe-row-alignment: how many rows the DeepGEMM experts lay out for a batch."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.platforms import current_platform
from vllm.utils.deep_gemm import get_theoretical_mk_alignment_for_contiguous_layout

TOP_K, EXPERTS = 6, 384

Layout = Callable[..., tuple[int, int]]


@pytest.fixture
def layout(fresh: Callable[..., ModuleType]) -> Callable[[str | None], Layout]:
    """compute_aligned_M_and_alignment under a value of the switch; DeepGEMM's own alignment is 128."""

    def load(switch: str | None) -> Layout:
        module: Any = fresh("vllm.model_executor.layers.fused_moe.deep_gemm_utils", VLLM_MOET_MOE_BLOCK_M=switch)

        def rows(tokens: int, experts: int = EXPERTS, meta: object = None) -> tuple[int, int]:
            return module.compute_aligned_M_and_alignment(tokens, TOP_K, experts, 128, meta)

        return rows

    return load


def _rows(tokens: int, experts: int, alignment: int) -> int:
    """Room for every pair, and for one part-filled tile of each expert that can be active."""
    worst = tokens * TOP_K + min(tokens * TOP_K, experts) * (alignment - 1)
    return -(-worst // alignment) * alignment


def test_on_a_decode_step_takes_half_the_rows(layout: Callable[[str | None], Layout]) -> None:
    assert layout("64")(6) == (2304, 64)


@pytest.mark.parametrize("switch", [None, "0"], ids=["default", "off"])
def test_off_a_decode_step_keeps_upstreams_rows(layout: Callable[[str | None], Layout], switch: str | None) -> None:
    assert layout(switch)(6) == (4608, 128)


@pytest.mark.parametrize(
    ("tokens", "experts", "alignment"),
    [
        (1, 384, 64),
        (48, 384, 64),
        (2048, 384, 64),
        (2049, 384, 128),
        (8192, 384, 128),
        (512, 96, 64),
        (513, 96, 128),
        (682, 128, 64),
        (683, 128, 128),
    ],
)
def test_on_it_changes_where_experts_hold_more_than_32_tokens(
    layout: Callable[[str | None], Layout], tokens: int, experts: int, alignment: int
) -> None:
    assert layout("64")(tokens, experts) == (_rows(tokens, experts, alignment), alignment)


def test_on_more_tokens_never_need_fewer_rows(layout: Callable[[str | None], Layout]) -> None:
    """The workspace is sized once, for the largest batch."""
    rows = layout("64")
    sizes = [rows(tokens)[0] for tokens in range(1, 4096)]
    assert sizes == sorted(sizes)


def test_on_rows_counted_on_the_host_keep_their_alignment(layout: Callable[[str | None], Layout]) -> None:
    counts = SimpleNamespace(expert_num_tokens_cpu=torch.tensor([1, 0, 129], dtype=torch.int32))
    assert layout("64")(6, 3, counts) == (128 + 256, 128)


@pytest.mark.parametrize("family", [90, 100])
def test_on_other_architectures_keep_upstreams_rows(
    layout: Callable[[str | None], Layout], monkeypatch: pytest.MonkeyPatch, family: int
) -> None:
    rows = layout("64")
    monkeypatch.setattr(
        type(current_platform),
        "is_device_capability_family",
        classmethod(lambda cls, capability, device_id=0: capability == family),
    )
    assert rows(6) == (4608, 128)


@pytest.mark.parametrize("value", ["96", "128", "yes", ""])
def test_other_values_are_refused_by_name(layout: Callable[[str | None], Layout], value: str) -> None:
    with pytest.raises(ValueError, match=r"VLLM_MOET_MOE_BLOCK_M.*\['0', '64'\]"):
        layout(value)


def test_deepgemm_still_does_not_choose_for_itself() -> None:
    """Why the step exists: vLLM's call that should shrink the alignment fails, and nobody notices."""
    with pytest.raises(RuntimeError, match="expected at most 1 argument"):
        get_theoretical_mk_alignment_for_contiguous_layout(expected_m=36, num_groups=EXPERTS)
