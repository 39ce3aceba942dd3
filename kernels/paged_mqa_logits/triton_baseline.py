"""The same logits in Triton, for the bench: FP8 keys, one program a tile of keys, tuned over its tiles."""

import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"block": block}, num_warps=warps, num_stages=1) for block in (64, 128, 256) for warps in (4, 8)
]


@triton.autotune(configs=_CONFIGS, key=["rows", "longest"])  # type: ignore[untyped-decorator]
@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    q,
    values,
    scales,
    weights,
    contexts,
    tables,
    out,
    next_n,
    longest,
    page_bytes,
    table_stride,
    out_stride,
    page: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
):
    request = tl.program_id(1)
    keys = tl.program_id(0) * block + tl.arange(0, block)
    last = tl.load(contexts + request * next_n + next_n - 1)
    if tl.program_id(0) * block >= tl.minimum(last, longest):
        return
    pages = tl.load(tables + request * table_stride + keys // page, mask=keys < last, other=0).to(tl.int64)
    d, r = tl.arange(0, 128), tl.arange(0, rows * 32)
    k = tl.load(values + (pages * page_bytes + keys % page * 128)[:, None] + d[None, :])
    scale = tl.load(scales + (pages * page_bytes + page * 128) // 4 + keys % page)
    head = request * next_n * 32 + r
    a = tl.load(q + head[:, None] * 128 + d[None, :], mask=(r < next_n * 32)[:, None], other=0.0)
    w = tl.load(weights + head, mask=r < next_n * 32, other=0.0)
    products = tl.maximum(tl.dot(k, tl.trans(a)), 0.0) * w[None, :]
    sums = tl.sum(tl.reshape(products, (block, rows, 32)), axis=2) * scale[:, None]
    j = tl.arange(0, rows)
    context = tl.load(contexts + request * next_n + j, mask=j < next_n, other=0)
    to = out + ((request * next_n + j) * out_stride)[None, :].to(tl.int64) + keys[:, None]
    tl.store(to, sums, mask=keys[:, None] < context[None, :])


def paged_mqa_logits(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    context_lens: torch.Tensor,
    block_tables: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Writes the logits to out; as op.paged_mqa_logits, of FP8 keys whose pages are contiguous."""
    flat = kv_cache.view(-1)
    requests, next_n = context_lens.shape
    page, longest = kv_cache.shape[1], out.shape[1]
    _kernel[lambda meta: (triton.cdiv(longest, meta["block"]), requests)](
        q,
        flat.view(torch.float8_e4m3fn),
        flat.view(torch.float32),
        weights,
        context_lens,
        block_tables,
        out,
        next_n,
        longest,
        kv_cache.stride(0),
        block_tables.stride(0),
        out.stride(0),
        page=page,
        rows=triton.next_power_of_2(next_n),
    )
