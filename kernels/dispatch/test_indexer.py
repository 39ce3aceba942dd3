from typing import Any

import pytest
import torch

from kernels.dispatch import indexer
from kernels.paged_mqa_logits import op

SLOTS = 188


def test_pages_of_128_keys_on_sm120_are_taken() -> None:
    assert indexer.refusal(128, sm120=True) is None


@pytest.mark.parametrize("page_rows", [32, 64, 256])
def test_other_pages_are_named(page_rows: int) -> None:
    assert indexer.refusal(page_rows, sm120=True) == f"pages have {page_rows} keys"


@pytest.mark.parametrize("page_rows", [64, 128])
def test_another_device_is_named_whatever_the_page(page_rows: int) -> None:
    assert indexer.refusal(page_rows, sm120=False) == "the device is not of compute capability 12.0"


def test_the_kernel_takes_the_pages_that_are_sent_to_it() -> None:
    assert indexer.PAGE_ROWS in op.PAGE_SIZES


def arguments(next_n: int = 1, pairs: bool = False) -> dict[str, Any]:
    """What vLLM calls fp8_fp4_paged_mqa_logits with, for two requests."""
    values = torch.zeros(2, next_n, 32, 64 if pairs else 128, dtype=torch.int8)
    return {
        "q": (values, torch.zeros(2, next_n, 32, dtype=torch.int32))
        if pairs
        else (values.view(torch.float8_e4m3fn), None),
        "kv_cache": torch.zeros(4, 128, 1, 68 if pairs else 132, dtype=torch.uint8),
        "weights": torch.zeros(2 * next_n, 32),
        "context_lens": torch.ones(2, next_n, dtype=torch.int32),
        "block_tables": torch.zeros(2, 2, dtype=torch.int32),
        "schedule_metadata": torch.zeros(SLOTS + 1, 2, dtype=torch.int32),
        "max_model_len": 256,
    }


# The operator looks at the device last: what it objects to is all that is wrong.
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("next_n", [1, indexer.MOST_NEXT_N])
def test_vllms_arguments_fit_the_operator(next_n: int, pairs: bool) -> None:
    with pytest.raises(RuntimeError, match=r"^paged_mqa_logits: q: is not on a CUDA device; expected one$"):
        indexer.logits(**arguments(next_n, pairs))
    lens = torch.ones(2, next_n, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"^paged_mqa_logits_metadata: context_lens: is not on a CUDA device"):
        indexer.schedule(lens, 128, SLOTS)


def test_a_table_of_one_column_may_have_any_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[torch.Tensor] = []
    monkeypatch.setattr(op, "paged_mqa_logits", lambda *args, **kwargs: handed.append(args[5]))
    column = torch.tensor([[3, 1]], dtype=torch.int32).t()
    assert column.stride(-1) != 1
    indexer.logits(**arguments() | {"block_tables": column})
    assert handed[0].stride(-1) == 1
    assert handed[0].tolist() == [[3], [1]]


def test_a_request_number_for_each_row_is_refused_by_both() -> None:
    numbers = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"^indices: \[2\]; pages of 128 keys on sm_120 take none, pass None$"):
        indexer.schedule(torch.ones(2, 1, dtype=torch.int32), 128, SLOTS, numbers)
    with pytest.raises(ValueError, match=r"^indices: \[2\]"):
        indexer.logits(**arguments(), indices=numbers)
