"""The same records as torch operators, which the bench has torch compile. Every slot is one that the cache has."""

import torch


def _scaled(largest: torch.Tensor, most: float, least: int) -> tuple[torch.Tensor, torch.Tensor]:
    """UE8M0 bytes, and what a group is multiplied by."""
    bits = (largest / most).view(torch.int32)
    power = ((bits >> 23) + ((bits & 0x7FFFFF) != 0).int()).clamp(min=least)
    return power.to(torch.uint8), ((254 - power) << 23).view(torch.float32)


def _e2m1(scaled: torch.Tensor) -> torch.Tensor:
    """Pairs of E2M1: [..., n / 2] of [..., n]."""
    a = scaled.abs()
    code = (a > 0.25).int() + (a >= 0.75).int() + (a > 1.25).int() + (a >= 1.75).int()
    code = code + (a > 2.5).int() + (a >= 3.5).int() + (a > 5.0).int()
    code = code | (scaled.signbit().int() << 3)
    return (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8)


def write(
    rows: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    slots: torch.Tensor,
    weight: torch.Tensor,
    cache: torch.Tensor,
    eps: float,
) -> None:
    """Does what op.kv_record and, for 68 bytes, op.kv_record_key do; pages have no padding."""
    (count, dims), (pages, page, width) = rows.shape, cache.shape
    group = 16 if width == 288 else 32
    data = width - dims // group
    x = rows.float()
    if width == 68:
        x = (x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps) * weight.float()).bfloat16().float()
    cos, sin = cos_sin[positions].chunk(2, dim=1)
    even, odd = x[:, -64::2], x[:, -63::2]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=2).flatten(1)
    grouped = torch.cat([x[:, :-64], turned], dim=1).bfloat16().float().view(count, -1, group)
    largest = grouped.abs().amax(dim=2)
    if width == 288:
        divisors = (largest / 6).clamp(2.0**-9, 448).to(torch.float8_e4m3fn)
        scales, scaled = divisors.view(torch.uint8), grouped / divisors.float()[:, :, None]
    else:
        scales, factors = _scaled(largest, *((448.0, 114) if width == 528 else (6.0, 1)))
        scaled = grouped * factors[:, :, None]
    codes = scaled.to(torch.float8_e4m3fn).view(torch.uint8) if width == 528 else _e2m1(scaled)
    memory, number, at = cache.view(pages, page * width), slots // page, slots % page
    memory[:, : page * data].unflatten(1, (page, data))[number, at] = codes.view(count, data)
    memory[:, page * data :].unflatten(1, (page, width - data))[number, at] = scales
