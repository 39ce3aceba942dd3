from typing import Any

import pytest
import torch

from kernels.dispatch import moe
from kernels.moe_front import op

SM120 = {"top": 6, "alignment": 64, "sm120": True, "batch_invariant": False}


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def refusal(**changes: Any) -> str | None:
    given = {"logits": torch.zeros(6, 384), "bias": torch.zeros(384), "x": bf16(6, 5120)}
    return moe.refusal(**(given | SM120 | changes))


@pytest.mark.parametrize("alignment", [64, 128])
@pytest.mark.parametrize("tokens", [1, 6, 16, 64])
@pytest.mark.parametrize("k", [512, 5120, 8192])
@pytest.mark.parametrize("experts", [128, 256, 384])
def test_what_the_kernel_takes_is_taken(tokens: int, experts: int, k: int, alignment: int) -> None:
    logits, bias = torch.zeros(tokens, experts), torch.zeros(experts)
    assert refusal(logits=logits, bias=bias, x=bf16(tokens, k), alignment=alignment) is None


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("the device is not of compute capability 12.0", {"sm120": False}),
    ("batch invariance is asked for, which larger batches would break", {"batch_invariant": True}),
    ("a token goes to 8 experts, not 6", {"top": 8}),
    ("rows are aligned to 256, not 64 or 128", {"alignment": 256}),
    ("the router has no bias", {"bias": None}),
    ("logits are torch.bfloat16 and the bias torch.float32, not both float32", {"logits": bf16(6, 384)}),
    ("logits are torch.float32 and the bias torch.bfloat16, not both float32", {"bias": bf16(384)}),
    ("logits or bias are not contiguous", {"logits": torch.zeros(384, 6).t()}),
    ("logits or bias are not contiguous", {"bias": torch.zeros(768)[::2]}),
    ("there are 384 experts and 256 in the bias", {"bias": torch.zeros(256)}),
    ("there are 400 experts", {"logits": torch.zeros(6, 400), "bias": torch.zeros(400)}),
    ("there are 416 experts", {"logits": torch.zeros(6, 416), "bias": torch.zeros(416)}),
    ("activations are torch.float32, not bfloat16", {"x": torch.zeros(6, 5120)}),
    ("activations are not contiguous", {"x": bf16(6, 5632)[:, :5120]}),
    ("activations are not contiguous", {"x": bf16(6 * 512 + 1)[1:].view(6, 512)}),
    ("activations have 5376 columns, not a multiple of 512 up to 8192", {"x": bf16(6, 5376)}),
    ("activations have 8704 columns", {"x": bf16(6, 8704)}),
    ("a batch has no token, or more than 64", {"logits": torch.zeros(65, 384), "x": bf16(65, 512)}),
    ("a batch has no token, or more than 64", {"logits": torch.zeros(0, 384), "x": bf16(0, 512)}),
    ("a batch has no token, or more than 64, or not a row of logits for each", {"x": bf16(5, 512)}),
]


@pytest.mark.parametrize(("reason", "change"), REFUSALS)
def test_what_does_not_fit_is_named(reason: str, change: dict[str, Any]) -> None:
    answer = refusal(**change)
    assert answer is not None
    assert answer.startswith(reason)


def run(**changes: Any) -> moe.Rows:
    rows = op.rows(6, 384, 64)
    given = {
        "logits": torch.zeros(6, 384),
        "bias": torch.zeros(384),
        "x": bf16(6, 5120),
        "alignment": 64,
        "scaling_factor": 1.5,
        "is_padding": torch.zeros(6, dtype=torch.bool),
        "token_ids": torch.zeros(6, dtype=torch.int64),
        "image_bias": torch.zeros(384),
        "image_first": 7,
        "a": torch.zeros(rows, 5120, dtype=torch.float8_e4m3fn),
        "topk_weights": torch.zeros(6, 6),
        "topk_ids": torch.zeros(6, 6, dtype=torch.int32),
    }
    return moe.run(**(given | changes))


# The operator looks at the device last: what it objects to is all that is wrong.
@pytest.mark.parametrize(
    "change",
    [{}, {"is_padding": None}, {"image_bias": None}, {"image_first": 0}, {"token_ids": None, "image_bias": None}],
)
def test_what_is_taken_fits_the_operator(change: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"^moe_front: logits: is not on a CUDA device; expected one$"):
        run(**change)


def test_rows_come_as_the_grouped_gemm_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(op, "moe_front", lambda *args, **rest: calls.append(rest))
    made = run()
    (call,) = calls
    assert (made.a_scale.shape, made.a_scale.stride()) == ((2304, 10), (1, 2304))
    assert (made.m_indices.shape, made.inv_perm.shape) == ((2304,), (6, 6))
    assert call["out"][1:4] == tuple(made)
    assert (call["alignment"], call["group"], call["dependent"]) == (64, 128, True)


def test_without_image_tokens_the_operator_gets_none_of_the_three(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(op, "moe_front", lambda *args, **rest: calls.append(rest))
    run(image_first=0)
    run(image_bias=None)
    assert [(call["token_ids"], call["image_bias"], call["image_first"]) for call in calls] == [(None, None, 0)] * 2
