"""How DeepSeek V4.1's KV records are written on sm_120, and what flashinfer calls them there.

vLLM asks for them by a data type of its KV cache, and no other kernel writes their pages: what does not fit fails.
"""

import torch

from ..kv_record import op

# flashinfer's names: of a layer with a window and a compressed cache, and of one that has the window alone.
READER_FORMAT = "fp8_dsv41_fp4_ca"
WINDOW_READER_FORMAT = "fp8_dsv41"


def insert_window(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    queries: torch.Tensor | None = None,
) -> None:
    """Stores the MXFP8 records of a sliding window, and rotates the queries of the same tokens where they are.

    Args:
        rows: bfloat16 [tokens, 512], normalized.
        positions: int64 [tokens].
        cos_sin: float32 [positions known, 64].
        slots: int64 [no more than tokens]; -1 where a token is not stored.
        cache: uint8 [pages, tokens a page, 528].
        queries: bfloat16 [tokens, heads, 512].

    The launch is dependent: slots and positions are written before the model runs, many kernels ahead.

    Raises RuntimeError naming the argument that does not fit.
    """
    op.kv_record(rows, positions, cos_sin, slots, cache, queries=queries, dependent=True)


def insert_compressed(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    compress_ratio: int,
) -> None:
    """Stores the FP4 records of a compressed cache, of rows that end a group.

    Args:
        rows: bfloat16 [tokens, 512], normalized; those in the midst of a group are not read.
        positions: as for insert_window().
        cos_sin: as for insert_window().
        slots: as for insert_window().
        cache: uint8 [pages, rows a page, 288].
        compress_ratio: 1 or 2: tokens a row stands for.

    The launch waits for the kernel ahead, which vLLM may have put on another stream.

    Raises RuntimeError naming the argument that does not fit.
    """
    op.kv_record(rows, positions, cos_sin, slots, cache, compress_ratio=compress_ratio)
