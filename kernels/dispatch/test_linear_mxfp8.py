from typing import Any

import pytest
import torch

from kernels.dispatch import linear_mxfp8
from kernels.mxfp8_gemv.op import KS


def operands(rows: int, n: int, k: int) -> dict[str, Any]:
    def scales(count: int) -> torch.Tensor:
        return torch.zeros(-(-count // 128) * 128 * (-(-k // 128) * 4), dtype=torch.uint8)

    return {
        "x": torch.empty(rows, k, dtype=torch.float8_e4m3fn),
        "x_scale": scales(rows),
        "weight": torch.empty(n, k, dtype=torch.float8_e4m3fn),
        "weight_scale": scales(n),
        "out_dtype": torch.bfloat16,
        "sm120": True,
        "batch_invariant": False,
    }


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("n", [16, 1152, 1792])
def test_what_the_kernel_takes_is_taken(n: int, k: int) -> None:
    assert [linear_mxfp8.refusal(**operands(rows, n, k)) for rows in (1, 6, 16)] == [None] * 3


def misaligned(rows: int, k: int) -> torch.Tensor:
    return torch.empty(rows * k + 8, dtype=torch.float8_e4m3fn)[8:].view(rows, k)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"sm120": False}, "the device is not of compute capability 12.0"),
    ({"batch_invariant": True}, "batch invariance is asked for, which larger batches would break"),
    ({"out_dtype": torch.float16}, "layer [256, 576] wants torch.float16, not torch.bfloat16"),
    (operands(6, 256, 608), f"layer [256, 608] has another K than {', '.join(map(str, KS))}"),
    (operands(6, 8, 576), "layer [8, 576] has fewer than 16 rows"),
    (operands(0, 256, 576), "a batch has no row, or more than 16"),
    (operands(17, 256, 576), "a batch has no row, or more than 16"),
    (operands(8192, 256, 576), "a batch has no row, or more than 16"),
    ({"x": torch.empty(6, 576, dtype=torch.bfloat16)}, "layer [256, 576] gets an activation of torch.bfloat16, not"),
    ({"x": misaligned(6, 576)}, "layer [256, 576] gets an activation that is not contiguous"),
    (
        {"weight": torch.empty(256, 1152, dtype=torch.float8_e4m3fn)[:, :576]},
        "layer [256, 576] has a weight that is not",
    ),
    ({"x_scale": torch.zeros(6, 18, dtype=torch.uint8)}, "layer [256, 576] gets an activation whose scales are not"),
    ({"weight_scale": torch.zeros(256, 18, dtype=torch.uint8)}, "layer [256, 576] has a weight whose scales are not"),
    (
        {"weight_scale": torch.zeros(256 * 20, dtype=torch.float32)},
        "layer [256, 576] has a weight whose scales are not",
    ),
]


@pytest.mark.parametrize(("change", "reason"), REFUSALS, ids=[reason for _, reason in REFUSALS])
def test_what_does_not_fit_is_named(change: dict[str, Any], reason: str) -> None:
    answer = linear_mxfp8.refusal(**operands(6, 256, 576) | change)
    assert answer is not None
    assert answer.startswith(reason)
