from typing import Any

import pytest
import torch

from kernels.dispatch import linear_bf16


def refusal(x: torch.Tensor, weight: torch.Tensor, **changes: bool) -> str | None:
    return linear_bf16.refusal(x, weight, **{"sm120": True, "batch_invariant": False} | changes)


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


@pytest.mark.parametrize(("n", "k"), [(32, 5120), (128, 512), (384, 5120), (128, 5120), (1, 8), (7, 10240)])
def test_what_the_kernel_takes_is_taken(n: int, k: int) -> None:
    assert [refusal(bf16(rows, k), bf16(n, k)) for rows in (1, 6, 16)] == [None] * 3
    assert refusal(bf16(6, 2 * k)[:, :k], bf16(n, k)) is None


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("the device is not of compute capability 12.0", {"sm120": False}),
    ("batch invariance is asked for, which larger batches would break", {"batch_invariant": True}),
    ("a batch has no row, or more than 16", {"x": bf16(0, 64)}),
    ("a batch has no row, or more than 16", {"x": bf16(17, 64)}),
    ("layer [32, 64] gets an activation of torch.float32, not torch.bfloat16", {"x": bf16(6, 64).float()}),
    ("layer [32, 64] gets an activation of 3 dimensions, not 2", {"x": bf16(2, 3, 64)}),
    ("layer [32, 64] gets an activation whose rows do not begin", {"x": bf16(6, 68)[:, :64]}),
    ("layer [32, 64] gets an activation whose rows do not begin", {"x": bf16(6, 72)[:, 1:65]}),
    ("layer [32, 64] gets an activation whose rows do not begin", {"x": bf16(64, 6).t()}),
    ("layer [32, 64] gets an activation whose rows do not begin", {"x": bf16(1, 64).expand(6, 64)}),
    ("layer [32, 64] has a weight of torch.float32, not torch.bfloat16", {"weight": bf16(32, 64).float()}),
    ("layer [32, 60] has a weight of 60 columns, not a multiple of 8 up to 10240", {"weight": bf16(32, 60)}),
    ("layer [2, 10248] has a weight of 10248 columns", {"weight": bf16(2, 10248)}),
]


@pytest.mark.parametrize(("reason", "change"), REFUSALS)
def test_what_does_not_fit_is_named(reason: str, change: dict[str, Any]) -> None:
    answer = refusal(**{"x": bf16(6, 64), "weight": bf16(32, 64)} | change)
    assert answer is not None
    assert answer.startswith(reason)
