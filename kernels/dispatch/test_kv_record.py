from typing import Any

import pytest
import torch

from kernels.dispatch import kv_record
from kernels.kv_record import op

TOKENS = 3


Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def tensors(width: int, page: int) -> Tensors:
    """Rows, positions, cosines and sines, slots and cache, as vLLM has them; more rows than slots."""
    integers = torch.zeros(TOKENS + 1, dtype=torch.int64)
    cache = torch.zeros(2, page * width + 512, dtype=torch.uint8)[:, : page * width].unflatten(1, (page, width))
    rows = torch.zeros(TOKENS + 1, 512, dtype=torch.bfloat16)
    return rows, integers, torch.zeros(8, 64), integers[:TOKENS], cache


# The operator looks at the device last: what it objects to is all that is wrong.
@pytest.mark.parametrize("heads", [None, 8, 64])
def test_a_window_fits_the_operator(heads: int | None) -> None:
    queries = None if heads is None else torch.zeros(TOKENS + 1, heads, 512, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"^kv_record: rows: is not on a CUDA device; expected one$"):
        kv_record.insert_window(*tensors(528, 32), queries)


@pytest.mark.parametrize(("page", "ratio"), [(64, 2), (128, 1)])
def test_a_compressed_cache_fits_the_operator(page: int, ratio: int) -> None:
    with pytest.raises(RuntimeError, match=r"^kv_record: rows: is not on a CUDA device; expected one$"):
        kv_record.insert_compressed(*tensors(288, page), ratio)


@pytest.mark.parametrize("page", [16, 256])
def test_other_pages_are_refused(page: int) -> None:
    with pytest.raises(RuntimeError, match=r"^kv_record: cache: "):
        kv_record.insert_window(*tensors(528, page))


def test_only_a_window_is_stored_ahead_of_the_end_of_the_kernel_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(op, "kv_record", lambda *given, **options: seen.append(options))
    kv_record.insert_window(*tensors(528, 32))
    kv_record.insert_compressed(*tensors(288, 64), 2)
    assert seen == [{"queries": None, "dependent": True}, {"compress_ratio": 2}]
