"""The sparse indexer's logits over a paged cache of keys, in one launch; and the schedule that it takes."""

import torch

from ..extension import library

library.load("paged_mqa_logits")

PAGE_SIZES = (32, 64, 128)
HEADS = 32
HEAD_DIM = 128
MOST_NEXT_N = 8

# Rows of a result that is made here begin this many columns apart, or a multiple: 256 bytes.
_ROW_UNIT = 64


def _logits_fake(
    q: torch.Tensor,
    q_scale: torch.Tensor | None,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    schedule_metadata: torch.Tensor,
    max_model_len: int,
    out: torch.Tensor,
    dependent: bool = False,
) -> None:
    del q_scale, kv_cache, context_lens, block_tables, schedule_metadata, dependent
    rows = q.shape[0] * q.shape[1]
    torch._check(weights.shape[0] == rows, lambda: "paged_mqa_logits: weights: expected as many rows as q has")
    expected = (rows, max_model_len)
    torch._check(out.shape == expected, lambda: "paged_mqa_logits: out: expected q's rows and max_model_len columns")


def _metadata_fake(context_lens: torch.Tensor, block_size: int, out: torch.Tensor, dependent: bool = False) -> None:
    del context_lens, block_size, dependent
    torch._check(out.shape[1] == 2, lambda: "paged_mqa_logits_metadata: out: expected two columns")


# What the operators do to tensors without memory: nothing, if their shapes fit.
torch.library.register_fake("moet::paged_mqa_logits", _logits_fake)
torch.library.register_fake("moet::paged_mqa_logits_metadata", _metadata_fake)


def paged_mqa_logits_metadata(
    context_lens: torch.Tensor,
    block_size: int,
    num_slots: int,
    *,
    out: torch.Tensor | None = None,
    dependent: bool = False,
) -> torch.Tensor:
    """Returns how paged_mqa_logits is to share out its work among `num_slots` blocks, int32: [num_slots + 1, 2].

    A row is where a block begins: a request, and a unit of 32 keys in it. The schedule decides who computes a logit and
    not what it is: with another schedule, or that of other lengths, the result has the same bits, only later.

    Args:
        context_lens: int32, contiguous: [requests] or [requests, 1], the keys that a request sees; or
            [requests, next_n], those that each of its rows sees. Less than 0 counts as 0.
        block_size: keys a page, one of PAGE_SIZES. The schedule is the same for all.
        num_slots: 1 to 65535; as many as the device has multiprocessors is best.
        out: where to. Made when absent.
        dependent: launch so that the kernel begins before the kernel ahead of it in the stream has ended. It reads
            nothing until that has.

    Raises RuntimeError naming the argument that does not fit.
    """
    if not 1 <= num_slots <= 65535:
        raise RuntimeError(f"paged_mqa_logits_metadata: num_slots: is {num_slots}; expected 1 to 65535")
    if out is None:
        out = context_lens.new_empty((num_slots + 1, 2), dtype=torch.int32)
    elif out.shape != (num_slots + 1, 2):
        raise RuntimeError(
            f"paged_mqa_logits_metadata: out: shape is {list(out.shape)}; expected {[num_slots + 1, 2]}, for num_slots"
        )
    torch.ops.moet.paged_mqa_logits_metadata(context_lens, block_size, out, dependent)
    return out


def paged_mqa_logits(
    q: torch.Tensor,
    q_scale: torch.Tensor | None,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    schedule_metadata: torch.Tensor,
    max_model_len: int,
    *,
    out: torch.Tensor | None = None,
    dependent: bool = False,
) -> torch.Tensor:
    """Returns the logit of every key for every row of q, float32: [requests * next_n, max_model_len].

    logit = scale of the key * sum over heads of weight * max(q . key, 0). Columns from a row's context on are not
    written. The bits of a logit depend on its row of q, its weights and its key: not on the batch, next_n, the page
    size or the schedule.

    Args:
        q: float8_e4m3fn [requests, next_n, 32, 128], or pairs of E2M1 in int8 or uint8 [requests, next_n, 32, 64], the
            lower nibble first; contiguous; next_n up to 8.
        q_scale: none for E4M3; for E2M1 int32 [requests, next_n, 32], the UE8M0 bytes of four times 32 values.
        kv_cache: uint8 [pages, page, 1, 132], of E2M1 [pages, page, 1, 68]; page one of PAGE_SIZES. In a page the
            values of every key come first, then 4 bytes a key: float32, or four UE8M0. Pages may be a multiple of 16
            bytes apart. A page number outside of it stands for keys that are 0.
        weights: float32 [requests * next_n, 32], contiguous.
        context_lens: as for paged_mqa_logits_metadata. What is behind max_model_len or behind block_tables counts as
            not there.
        block_tables: int32 [requests, pages a request]; rows may be further apart. Entries behind the context are not
            read.
        schedule_metadata: from paged_mqa_logits_metadata.
        max_model_len: columns of the result.
        out: where to; rows may be further apart. Made when absent, with rows that begin at multiples of 256 bytes.
        dependent: launch so that the kernel begins, and reads context_lens, block_tables and schedule_metadata, before
            the kernel ahead of it in the stream has ended. Not where a kernel that may still run writes those.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        stride = -(-max_model_len // _ROW_UNIT) * _ROW_UNIT
        whole = q.new_empty((q.shape[0] * q.shape[1] if q.dim() > 1 else 0, max(stride, 0)), dtype=torch.float32)
        out = whole[:, :max_model_len]
    torch.ops.moet.paged_mqa_logits(
        q,
        q_scale,
        kv_cache,
        weights,
        context_lens,
        block_tables,
        schedule_metadata,
        max_model_len,
        out,
        dependent,
    )
    return out
