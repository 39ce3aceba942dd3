"""The same product in Triton, for the bench: what is quickly written, tuned over its tiles."""

import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"block_n": n, "block_k": k}, num_warps=warps, num_stages=stages)
    for n in (16, 32, 64)
    for k in (128, 256)
    for warps in (2, 4)
    for stages in (3, 5)
]


@triton.autotune(  # type: ignore[untyped-decorator]
    configs=_CONFIGS, key=["columns", "depth"]
)
@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    x, x_scale, w, w_scale, y, rows, columns, depth, block_n: tl.constexpr, block_k: tl.constexpr
):
    m, n = tl.arange(0, 16), tl.program_id(0) * block_n + tl.arange(0, block_n)
    k, s = tl.arange(0, block_k), tl.arange(0, block_k // 32)
    total = tl.zeros((16, block_n), dtype=tl.float32)
    for at in range(0, depth, block_k):
        in_m, in_n = (m < rows)[:, None], (n < columns)[:, None]
        in_k, in_s = (at + k < depth)[None, :], (at // 32 + s < depth // 32)[None, :]
        a = tl.load(x + m[:, None] * depth + at + k[None, :], mask=in_m & in_k, other=0.0).to(tl.bfloat16)
        b = tl.load(w + n[:, None] * depth + at + k[None, :], mask=in_n & in_k, other=0.0).to(tl.bfloat16)
        sa = tl.load(x_scale + m[:, None] * (depth // 32) + at // 32 + s[None, :], mask=in_m & in_s, other=127)
        sb = tl.load(w_scale + n[:, None] * (depth // 32) + at // 32 + s[None, :], mask=in_n & in_s, other=127)
        fa = (sa.to(tl.int16) << 7).to(tl.bfloat16, bitcast=True)
        fb = (sb.to(tl.int16) << 7).to(tl.bfloat16, bitcast=True)
        a = tl.reshape(tl.reshape(a, (16, block_k // 32, 32)) * fa[:, :, None], (16, block_k))
        b = tl.reshape(tl.reshape(b, (block_n, block_k // 32, 32)) * fb[:, :, None], (block_n, block_k))
        total = tl.dot(a, tl.trans(b), total)
    inside = (m < rows)[:, None] & (n < columns)[None, :]
    tl.store(y + m[:, None] * columns + n[None, :], total.to(tl.bfloat16), mask=inside)


def mxfp8_gemv(
    x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor, out: torch.Tensor
) -> None:
    """Writes x [M, K] times weight [N, K] transposed to out; up to 16 rows of x, scales [rows, K / 32]."""
    (m, k), n = x.shape, weight.shape[0]
    _kernel[lambda meta: (triton.cdiv(n, meta["block_n"]),)](x, x_scale, weight, weight_scale, out, m, n, k)
