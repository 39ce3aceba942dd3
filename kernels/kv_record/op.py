"""Rows of numbers to the records of a paged cache: rotated, quantized and stored in one launch; and back."""

import torch

from ..extension import library

library.load("kv_record")

PAGE_SIZES = (32, 64, 128)
ROPE_DIMS = 64
QUERY_DIMS = 512
# Numbers of a row by the bytes of its record: MXFP8, FP4, and the indexer's MXFP4 key.
DIMS = {528: 512, 288: 512, 68: 128}


def _rows_fake(
    name: str, rows: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, cache: torch.Tensor
) -> None:
    width = cache.shape[-1]
    torch._check(width in DIMS, lambda: f"{name}: cache: expected records of 528, 288 or 68 bytes")
    torch._check(rows.shape[-1] == DIMS[width], lambda: f"{name}: rows: expected {DIMS[width]} numbers")
    torch._check(slots.shape[0] <= rows.shape[0], lambda: f"{name}: slots: expected no more than there are rows")
    torch._check(slots.shape[0] <= positions.shape[0], lambda: f"{name}: positions: expected one for each slot")


def _record_fake(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    queries: torch.Tensor | None,
    compress_ratio: int,
    dependent: bool = False,
) -> None:
    del cos_sin, compress_ratio, dependent
    _rows_fake("kv_record", rows, positions, slots, cache)
    if queries is not None:
        fits = queries.shape[0] <= positions.shape[0] and queries.shape[2] == QUERY_DIMS
        torch._check(fits, lambda: f"kv_record: queries: expected a position for each, and {QUERY_DIMS} numbers")


def _key_fake(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    weight: torch.Tensor,
    cache: torch.Tensor,
    compress_ratio: int,
    eps: float,
    dependent: bool = False,
) -> None:
    del cos_sin, weight, compress_ratio, eps, dependent
    _rows_fake("kv_record_key", rows, positions, slots, cache)


def _gather_fake(cache: torch.Tensor, slots: torch.Tensor, out: torch.Tensor) -> None:
    expected = (slots.shape[0], DIMS[cache.shape[-1]])
    torch._check(out.shape == expected, lambda: "kv_record_gather: out: expected a row a slot, as wide as the record's")


# What the operators do to tensors without memory: nothing, if their shapes fit.
torch.library.register_fake("moet::kv_record", _record_fake)
torch.library.register_fake("moet::kv_record_key", _key_fake)
torch.library.register_fake("moet::kv_record_gather", _gather_fake)


def kv_record(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    *,
    queries: torch.Tensor | None = None,
    compress_ratio: int = 1,
    dependent: bool = False,
) -> None:
    """Rotates the last 64 numbers of each row, quantizes all 512, and stores the row's record in its slot.

    The width of the cache says which record: 528 bytes are MXFP8 (E4M3, a UE8M0 scale for 32), 288 are FP4 (E2M1, an
    E4M3 scale for 16). In a page the codes of all rows come first, then the scales of all rows. A rotated row is
    rounded to bfloat16, and its bytes are what flashinfer's writers make of that. Nothing but records is written.

    Args:
        rows: bfloat16 [rows, 512]; rows may be further apart, by a multiple of 8 numbers; 16-byte aligned.
        positions: int64 [as many as slots, or more], contiguous.
        cos_sin: float32 [positions known, 64], contiguous: the cosines of 32 pairs of neighbours, then their sines.
        slots: int64 [no more than rows], contiguous: page number times rows a page, plus the place in the page. A row
            is skipped whose slot the cache does not have (-1), whose position `cos_sin` does not have, or which is not
            the last of its group. No two rows that are stored may have the same slot.
        cache: uint8 [pages, rows a page, 528 or 288], rows a page one of PAGE_SIZES; pages without gaps, which may be
            further apart, by a multiple of 16 bytes; 16-byte aligned.
        queries: bfloat16 [no more than positions, heads, 512], whose last 64 numbers are rotated where they are, by the
            position of their token; heads and tokens a multiple of 8 numbers apart; 16-byte aligned. A token whose
            position `cos_sin` does not have keeps its numbers.
        compress_ratio: 1 or 2: positions a row stands for. It is stored at the last position of its group, and rotated
            by the first.
        dependent: launch so that the kernel begins, and reads slots and positions, before the kernel ahead of it in the
            stream has ended. Not where that kernel, or the one ahead of it, writes them.

    Raises RuntimeError naming the argument that does not fit.
    """
    torch.ops.moet.kv_record(rows, positions, cos_sin, slots, cache, queries, compress_ratio, dependent)


def kv_record_key(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    weight: torch.Tensor,
    cache: torch.Tensor,
    *,
    eps: float,
    compress_ratio: int = 1,
    dependent: bool = False,
) -> None:
    """Normalizes rows of 128 numbers, rotates their last 64, quantizes them to MXFP4, and stores the indexer's keys.

    A key is 64 bytes of E2M1 pairs, and in the page's footer four UE8M0 scales for 32 each, as paged_mqa_logits reads
    them. The normalized and the rotated row are each rounded to bfloat16.

    Args:
        rows: bfloat16 [rows, 128], otherwise as for kv_record.
        positions: as for kv_record.
        cos_sin: as for kv_record.
        slots: as for kv_record.
        weight: bfloat16 [128], contiguous, 16-byte aligned: by which a row over the root of its mean square is
            multiplied.
        cache: uint8 [pages, rows a page, 68], otherwise as for kv_record.
        eps: 0 or more, added to the mean square.
        compress_ratio: as for kv_record.
        dependent: as for kv_record; the weights too are read ahead.

    Raises RuntimeError naming the argument that does not fit.
    """
    torch.ops.moet.kv_record_key(rows, positions, cos_sin, slots, weight, cache, compress_ratio, eps, dependent)


def kv_record_gather(cache: torch.Tensor, slots: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns the rows in slots as bfloat16 [slots, 512], of keys [slots, 128]: for tests and tools, not for serving.

    Args:
        cache: uint8 [pages, rows a page, 528, 288 or 68], as for kv_record.
        slots: int64 [slots], contiguous; zeros where the cache does not have one.
        out: where to. Made when absent.

    Raises RuntimeError naming the argument that does not fit.
    """
    if out is None:
        dims = DIMS.get(cache.shape[-1], 0)
        out = torch.empty((slots.shape[0], dims), dtype=torch.bfloat16, device=cache.device)
    torch.ops.moet.kv_record_gather(cache, slots, out)
    return out
