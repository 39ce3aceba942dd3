"""The same products by dequantizing to bfloat16 and torch's grouped GEMM, for the bench. The grouping is given."""

import torch


def dequantize(planes: torch.Tensor, scales: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """Planes of codes [count, N * K / 4] and of scales [count, N * K / 32] as bfloat16 [count, N, K]."""
    count = planes.shape[0]
    codes = (planes[..., None] >> torch.arange(0, 8, 2, device=planes.device, dtype=torch.uint8)) & 3
    # Codes 0 to 3 are -4, -1, 1, 4.
    twice = codes.to(torch.bfloat16) * 2 - 3
    values = (twice + twice.sign() * (twice.abs() - 1) / 2).view(count, n // 16, k // 64, 8, 4, 2, 2, 2, 4)
    # [nb, kb, g, t, tile, k32, half, k4] to [nb, tile, g, kb, k32, half, t, k4].
    values = values.permute(0, 1, 5, 3, 2, 6, 7, 4, 8).reshape(count, n, k // 32, 32)
    powers = (scales.to(torch.int16) << 7).view(torch.bfloat16).view(count, n // 16, k // 32, 16)
    return (values * powers.transpose(2, 3).reshape(count, n, k // 32, 1)).view(count, n, k)


def grouped(x: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Returns rows x [P, K], by expert, times weights [count, N, K] transposed; `ends`, int32, is where each's end."""
    return torch._grouped_mm(x, weights.transpose(1, 2), offs=ends, out_dtype=torch.bfloat16)
