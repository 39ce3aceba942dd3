"""The same products in Triton, for the bench: what is quickly written, tuned over its tiles. The grouping is given."""

import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"block_n": n, "block_k": k}, num_warps=4, num_stages=3) for n in (16, 32, 64) for k in (128, 256)
]


@triton.autotune(  # type: ignore[untyped-decorator]
    configs=_CONFIGS, key=["rows", "depth"]
)
@triton.jit  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    x, x_scale, planes, scales, experts, first, pairs, out, slot, scale_slot, rows, depth, top,
    block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(1)
    expert, begin, end = tl.load(experts + group), tl.load(first + group), tl.load(first + group + 1)
    m, n = tl.arange(0, 16), tl.program_id(0) * block_n + tl.arange(0, block_n)
    is_pair = begin + m < end
    pair = tl.load(pairs + begin + m, mask=is_pair, other=0)
    row = pair // top
    q, s, code = tl.arange(0, block_k // 4), tl.arange(0, block_k // 32), tl.arange(0, 4)
    nb, tile, g = n // 16, n // 8 % 2, n % 8
    plane, scale = planes + expert.to(tl.int64) * slot, scales + expert.to(tl.int64) * scale_slot
    total = tl.zeros((16, block_n), dtype=tl.float32)
    for at in range(0, depth, block_k):
        k = at + tl.arange(0, block_k)
        quad = at // 4 + q
        kb, inside = quad // 16, quad // 8 % 2 * 2 + quad // 4 % 2
        byte = ((nb[:, None] * (depth // 64) + kb[None, :]) * 32 + g[:, None] * 4 + quad[None, :] % 4) * 8
        there = (n < rows)[:, None] & (quad < depth // 4)[None, :]
        codes = tl.load(plane + byte + tile[:, None] * 4 + inside[None, :], mask=there, other=0)
        codes = tl.reshape((codes[:, :, None] >> (2 * code)[None, None, :]) & 3, (block_n, block_k))
        level = tl.where((codes == 0) | (codes == 3), 4.0, 1.0) * tl.where(codes >= 2, 1.0, -1.0)
        in_s = (at // 32 + s < depth // 32)[None, :]
        sa = tl.load(
            x_scale + row[:, None] * (depth // 32) + at // 32 + s[None, :], mask=is_pair[:, None] & in_s, other=127
        )
        sb_at = (nb[:, None] * (depth // 32) + at // 32 + s[None, :]) * 16 + (n % 16)[:, None]
        sb = tl.load(scale + sb_at, mask=(n < rows)[:, None] & in_s, other=127)
        fa = (sa.to(tl.int16) << 7).to(tl.bfloat16, bitcast=True)
        fb = (sb.to(tl.int16) << 7).to(tl.bfloat16, bitcast=True)
        a = tl.load(x + row[:, None] * depth + k[None, :], mask=is_pair[:, None] & (k < depth)[None, :], other=0.0)
        a = tl.reshape(a.to(tl.bfloat16), (16, block_k // 32, 32)) * fa[:, :, None]
        b = tl.reshape(level.to(tl.bfloat16), (block_n, block_k // 32, 32)) * fb[:, :, None]
        total = tl.dot(tl.reshape(a, (16, block_k)), tl.trans(tl.reshape(b, (block_n, block_k))), total)
    store = is_pair[:, None] & (n < rows)[None, :]
    tl.store(out + pair[:, None] * rows + n[None, :], total.to(tl.bfloat16), mask=store)


def moe_w2(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    planes: torch.Tensor,
    scales: torch.Tensor,
    groups: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    out: torch.Tensor,
) -> None:
    """Writes x [M, K] times its experts' weights to out [M, top, N]; 2-bit, of one part, expert e in slot e.

    Args:
        x: float8_e4m3fn.
        x_scale: uint8 [M, K / 32].
        planes: uint8 [E, N * K / 4].
        scales: uint8 [E, N * K / 32].
        groups: int32: the experts; where the pairs of each begin, and in the end of all; the pairs by expert. At most
            16 of one expert.
        out: bfloat16.
    """
    used, first, pairs = groups
    (_, k), n, top = x.shape, out.shape[2], out.shape[1]
    _kernel[lambda meta: (triton.cdiv(n, meta["block_n"]), len(used))](
        x, x_scale, planes, scales, used, first, pairs, out, planes.stride(0), scales.stride(0), n, k, top
    )
