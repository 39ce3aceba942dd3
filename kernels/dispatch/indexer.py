"""When the sparse indexer's decode scores come from paged_mqa_logits, and why not where they do not."""

import torch

from ..paged_mqa_logits import op

# Keys a page: what DeepSeek V4.1 lays out on sm_120, and the DeepGEMM that vLLM 0.33.0 bundles refuses there.
PAGE_ROWS = 128
# Query rows a request that the kernel takes at once.
MOST_NEXT_N = op.MOST_NEXT_N


def refusal(page_rows: int, *, sm120: bool) -> str | None:
    """Says where DeepGEMM is to score pages of this many keys; None where schedule() and logits() can.

    The answer depends on no batch: the schedule is made before the queries are there, and both must agree.

    Args:
        page_rows: keys a page.
        sm120: whether the device has compute capability 12.0, for which the library has machine code.
    """
    if not sm120:
        return "the device is not of compute capability 12.0"
    if page_rows != PAGE_ROWS:
        return f"pages have {page_rows} keys"
    return None


def schedule(
    context_lens: torch.Tensor, page_rows: int, num_slots: int, indices: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns what logits() needs to spread its work: int32 [num_slots + 1, 2].

    Args:
        context_lens: int32 [B, next_n] or [B], keys that each query row sees.
        page_rows: keys a page.
        num_slots: pieces of work; the device's multiprocessors.
        indices: None. DeepGEMM's other form, a request's number for each row, is not taken.

    Raises ValueError where indices are given.
    """
    _without_indices(indices)
    return op.paged_mqa_logits_metadata(context_lens, page_rows, num_slots)


def logits(
    q: tuple[torch.Tensor, torch.Tensor | None],
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    schedule_metadata: torch.Tensor,
    max_model_len: int,
    indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """Returns the scores of every query row: float32 [B * next_n, max_model_len], defined up to the row's context.

    Args:
        q: values and scales, as vLLM's fp8_fp4_paged_mqa_logits has them: float8_e4m3fn [B, next_n, 32, 128] and None,
            or int8 [B, next_n, 32, 64] of two E2M1 a byte and int32 [B, next_n, 32] of four UE8M0 bytes.
        kv_cache: uint8 [pages, 128, 1, 132 or 68]; in a page all values, then all scales.
        weights: float32 [B * next_n, 32].
        context_lens: as for schedule().
        block_tables: int32 [B, columns].
        schedule_metadata: what schedule() returned for these lengths.
        max_model_len: columns of the result.
        indices: None, as for schedule().

    The launch is dependent: lengths, tables and schedule are written before the model runs, many kernels ahead.

    Raises ValueError where indices are given, and RuntimeError naming any other argument that does not fit.
    """
    _without_indices(indices)
    if block_tables.stride(-1) != 1:
        # A table of one column may be a view whose only column has any stride.
        block_tables = block_tables.clone(memory_format=torch.contiguous_format)
    values, scales = q
    return op.paged_mqa_logits(
        values,
        scales,
        kv_cache,
        weights,
        context_lens,
        block_tables,
        schedule_metadata,
        max_model_len,
        dependent=True,
    )


def _without_indices(indices: torch.Tensor | None) -> None:
    if indices is not None:
        raise ValueError(f"indices: {list(indices.shape)}; pages of {PAGE_ROWS} keys on sm_120 take none, pass None")
