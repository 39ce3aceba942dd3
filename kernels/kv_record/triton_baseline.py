"""The same records in Triton, for the bench: a program a row, as vLLM 0.33.0 has it for its own layout."""

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _write(  # type: ignore[no-untyped-def]
    rows, positions, cos_sin, slots, weight, cache, stride, eps,
    dims: tl.constexpr, width: tl.constexpr, data: tl.constexpr, group: tl.constexpr, page: tl.constexpr,
):  # fmt: skip
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, dims)
    slot = tl.load(slots + row)
    if slot < 0:
        return
    x = tl.load(rows + row * dims + at).to(tl.float32)
    if width == 68:
        x = x * tl.rsqrt(tl.sum(x * x, 0) / dims + eps) * tl.load(weight + at).to(tl.float32)
        x = x.to(tl.bfloat16).to(tl.float32)
    even, odd = tl.split(tl.reshape(x, (dims // 2, 2)))
    pair = tl.arange(0, dims // 2) - (dims - 64) // 2
    angles = cos_sin + tl.load(positions + row) * 64 + tl.maximum(pair, 0)
    cos = tl.load(angles, mask=pair >= 0, other=1.0)
    sin = tl.load(angles + 32, mask=pair >= 0, other=0.0)
    rotated = tl.interleave(even * cos - odd * sin, odd * cos + even * sin).to(tl.bfloat16).to(tl.float32)
    grouped = tl.reshape(rotated, (dims // group, group))
    largest = tl.max(tl.abs(grouped), axis=1)

    if width == 288:
        divisors = tl.clamp(tl.math.div_rn(largest, 6.0), 0.001953125, 448.0).to(tl.float8e4nv)
        scales = divisors.to(tl.uint8, bitcast=True)
        scaled = tl.math.div_rn(grouped, divisors.to(tl.float32)[:, None])
    else:
        most: tl.constexpr = 448.0 if width == 528 else 6.0
        least: tl.constexpr = 114 if width == 528 else 1
        bits = tl.math.div_rn(largest, most).to(tl.int32, bitcast=True)
        power = tl.maximum((bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32), least)
        scales = power.to(tl.uint8)
        scaled = grouped * ((254 - power) << 23).to(tl.float32, bitcast=True)[:, None]

    first = cache + slot // page * stride
    place = slot % page
    if width == 528:
        codes = tl.reshape(scaled.to(tl.float8e4nv).to(tl.uint8, bitcast=True), (dims,))
        tl.store(first + place * data + at, codes)
    else:
        a = tl.abs(scaled)
        code = (a > 0.25).to(tl.int32) + (a >= 0.75).to(tl.int32) + (a > 1.25).to(tl.int32)
        code += (a >= 1.75).to(tl.int32) + (a > 2.5).to(tl.int32) + (a >= 3.5).to(tl.int32) + (a > 5.0).to(tl.int32)
        code |= scaled.to(tl.int32, bitcast=True) >> 28 & 8
        low, high = tl.split(tl.reshape(code, (dims // 2, 2)))
        tl.store(first + place * data + tl.arange(0, data), (low | high << 4).to(tl.uint8))
    count: tl.constexpr = dims // group
    tl.store(first + page * data + place * count + tl.arange(0, count), scales)


def write(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    weight: torch.Tensor,
    cache: torch.Tensor,
    eps: float,
) -> None:
    """Does what op.kv_record and, for 68 bytes, op.kv_record_key do."""
    dims, width = rows.shape[1], cache.shape[2]
    group = 16 if width == 288 else 32
    _write[(len(slots),)](
        rows, positions, cos_sin, slots, weight, cache, cache.stride(0), eps,
        dims, width, width - dims // group, group, cache.shape[1], num_warps=1 if dims == 128 else 4,
    )  # fmt: skip
