"""The quantizer as one would write it with torch, for the bench to hold against: whole tensors, lookups and float64."""

from typing import Any

from tools.experts.checkpoint.schemes import FP8_BLOCK, NVFP4_BLOCK, Matrix

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_CODES = (2, 2, 2, 2, 2, 3, 3, 3, 1, 1, 1, 1, 1, 0, 0, 0)


def quantize(torch: Any, matrix: Matrix) -> tuple[Any, Any]:
    """Planes of codes and scales of a matrix, zero mode auto, as tensors; `torch` is the module.

    The same bytes as the other forms', but where a logarithm in float64 rounds to another exponent.
    """
    codes = torch.from_numpy(matrix.codes)
    if matrix.scheme == "mxfp4":
        nibbles, scales = _split(torch, codes), torch.from_numpy(matrix.scales)
        zero = (nibbles & 7) == 0
    else:
        values = _values(torch, matrix, codes).view(matrix.rows, -1, 32)
        amax = values.abs().amax(dim=2)
        exponents = torch.where(amax > 0, torch.round(torch.log2(amax / 6)), -127.0).clamp_(-127, 127)
        units = (values / torch.exp2(exponents).unsqueeze(2)).view(matrix.rows, matrix.columns)
        magnitudes = torch.bucketize(units.abs(), torch.tensor(_MIDPOINTS, dtype=torch.float64)).to(torch.uint8)
        nibbles = magnitudes | torch.signbit(units).to(torch.uint8) << 3
        zero, scales = units == 0, (exponents + 127).to(torch.uint8)
    count = int(zero.sum())
    negative = int((nibbles[zero] >> 3).sum())
    if min(negative, count - negative) * 20 < count:
        odd = (torch.arange(matrix.columns) % 2 * 8).to(torch.uint8)
        nibbles = torch.where(zero, odd, nibbles)
    table = torch.tensor(_CODES, dtype=torch.uint8)
    view = table[nibbles.int()].view(matrix.rows // 16, 2, 8, matrix.columns // 64, 2, 2, 4, 4)
    quads = view.permute(0, 3, 2, 6, 1, 4, 5, 7).reshape(-1, 4)
    plane = quads[:, 0] | quads[:, 1] << 2 | quads[:, 2] << 4 | quads[:, 3] << 6
    return plane, scales.view(matrix.rows // 16, 16, -1).transpose(1, 2).reshape(-1)


def _split(torch: Any, codes: Any) -> Any:
    return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)


def _values(torch: Any, matrix: Matrix, codes: Any) -> Any:
    if matrix.scheme == "nvfp4":
        table = torch.tensor(_MAGNITUDES + tuple(-one for one in _MAGNITUDES), dtype=torch.float64)
        scales = torch.from_numpy(matrix.scales).view(torch.float8_e4m3fn).double() * matrix.scale_2
        return table[_split(torch, codes).int()] * scales.repeat_interleave(NVFP4_BLOCK, 1)
    scales = torch.from_numpy(matrix.scales).double()
    whole = scales.repeat_interleave(FP8_BLOCK, 0)[: matrix.rows].repeat_interleave(FP8_BLOCK, 1)[:, : matrix.columns]
    return codes.view(torch.float8_e4m3fn).double() * whole
