"""mxfp8_gemv, plain and by groups, at the shapes that the model has on four cards, and where the result is exact."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ...common import formats, scale_layouts
from ...mxfp8_gemv import op, reference
from ..comparison import Array, Comparison

# [N, K] of fused_wqa_wkv, wq_b, wo_b, and the shared expert's two; OTHER_N for every other width that is compiled.
SHAPES = ((1792, 5120), (8192, 1280), (5120, 2048), (1152, 5120), (5120, 576))
OTHER_N = 256
ROWS = (1, 6, 16, op.MOST_ROWS)
# [G, N, K] of wo_a.
GROUPS = (2, 1024, 4096)

_NAN_CODE, _NAN_SCALE, _ONE = 0x7F, 0xFF, 127


@dataclass(frozen=True)
class _Matrix:
    """MXFP8: codes [rows, K] and scales [rows, K / 32], both bytes."""

    codes: Array
    scales: Array

    @property
    def values(self) -> Array:
        return reference.values(self.codes, self.scales)

    def rows(self, which: slice) -> "_Matrix":
        return _Matrix(self.codes[which], self.scales[which])

    def on(self, device: str, swizzled: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes, and scales with NaN in what fills up a tile."""
        scales = scale_layouts.swizzle(self.scales, _NAN_SCALE) if swizzled else self.scales
        codes, laid_out = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in (self.codes, scales))
        return codes.view(torch.float8_e4m3fn), laid_out


def comparisons(device: str) -> Iterator[Comparison]:
    """Runs the operators on a device; yields their outputs beside the oracle's."""
    generator = np.random.default_rng(1)
    widths = {k for _, k in SHAPES}
    for n, k in SHAPES:
        yield from _dense(generator, n, k, ROWS, device)
    for k in op.KS:
        if k not in widths:
            yield from _dense(generator, OTHER_N, k, (6, op.MOST_ROWS), device)
    for k in op.KS:
        yield from _exact(generator, k, device)
    yield from _grouped(generator, device)


def _dense(
    generator: np.random.Generator, n: int, k: int, rows: tuple[int, ...], device: str
) -> Iterator[Comparison]:
    x, weight = _any(generator, op.MOST_ROWS, k), _any(generator, n, k)
    x_values, weight_values = x.values, weight.values
    expected, bound = reference.mxfp8_gemv(x_values, weight_values), reference.bound(x_values, weight_values)
    weight_there = weight.on(device, swizzled=True)
    for m in rows:
        x_there = x.rows(slice(m)).on(device, swizzled=True)
        out = op.mxfp8_gemv(*x_there, *weight_there, swizzled=True, dependent=m == 6)
        yield Comparison(f"{n}x{k}, M={m}", _numbers(out), expected[:m], bound[:m])


def _exact(generator: np.random.Generator, k: int, device: str) -> Iterator[Comparison]:
    """A few small integers, whose sums bfloat16 has, and scales that are far apart while their products are 1."""
    dense = np.zeros((16, k))
    dense[:, generator.permutation(k)[:24]] = generator.integers(-2, 3, (16, 24))
    x = _Matrix(formats.encode_e4m3(dense), np.full((16, k // 32), _ONE, dtype=np.uint8))
    codes = formats.encode_e4m3(generator.integers(-2, 3, (208, k)).astype(np.float64))
    weight = _Matrix(codes, np.full((208, k // 32), _ONE, dtype=np.uint8))
    for start, step, ours, theirs in ((0, 2, 107, 147), (1, 3, 139, 115)):
        x.scales[:, start::step], weight.scales[:, start::step] = ours, theirs
    expected = reference.mxfp8_gemv(x.values, weight.values)
    for swizzled in (False, True):
        out = op.mxfp8_gemv(*x.on(device, swizzled), *weight.on(device, swizzled), swizzled=swizzled)
        yield Comparison(f"K={k}, integers, {'swizzled' if swizzled else 'plain'}", _numbers(out), expected)


def _grouped(generator: np.random.Generator, device: str) -> Iterator[Comparison]:
    groups, n, k = GROUPS
    x, weight = _any(generator, op.MOST_ROWS * groups, k), _any(generator, groups * n, k)
    x_values, weight_values = x.values.reshape(-1, groups, k), weight.values.reshape(groups, n, k)
    expected = reference.mxfp8_grouped_gemv(x_values, weight_values)
    bound = np.stack([reference.bound(x_values[:, g], weight_values[g]) for g in range(groups)], axis=1)
    codes, scales = weight.on(device, swizzled=True)
    for m in ROWS:
        some = x.rows(slice(m * groups))
        x_codes, x_scales = some.on(device, swizzled=True)
        tensors = (x_codes.view(m, groups, k), x_scales, codes.view(groups, n, k), scales)
        out = op.mxfp8_grouped_gemv(*tensors, swizzled=True, dependent=m == 6)
        yield Comparison(f"{groups}x{n}x{k}, M={m}", _numbers(out), expected[:m], bound[:m])
        tensors = (*_by_group(some, groups, device), codes.view(groups, n, k), scales)
        out = op.mxfp8_grouped_gemv(*tensors, swizzled=True, packed=True)
        yield Comparison(f"{groups}x{n}x{k}, M={m}, packed", _numbers(out), expected[:m], bound[:m])


def _by_group(x: _Matrix, groups: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of x [M * G, K] as vLLM's fused quantizer leaves them: the groups apart, and scales in words of four."""
    rows = len(x.codes) // groups
    codes, scales = (part.reshape(rows, groups, -1).transpose(1, 0, 2) for part in (x.codes, x.scales))
    words = torch.from_numpy(scale_layouts.pack(np.ascontiguousarray(scales))).to(device)
    values = torch.from_numpy(np.ascontiguousarray(codes)).to(device).view(torch.float8_e4m3fn)
    return values.transpose(0, 1), words.permute(2, 0, 1)[:rows]


def _any(generator: np.random.Generator, rows: int, k: int) -> _Matrix:
    """Every finite code, and scales around 1."""
    codes = generator.integers(0, 256, (rows, k), dtype=np.uint8)
    codes[(codes & 0x7F) == _NAN_CODE] = 0x3C
    return _Matrix(codes, generator.integers(112, 134, (rows, k // 32), dtype=np.uint8))


def _numbers(out: torch.Tensor) -> Array:
    return np.asarray(out.double().cpu().numpy())
