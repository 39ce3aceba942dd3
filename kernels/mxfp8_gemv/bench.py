"""Times mxfp8_gemv on this GPU, beside what a user would take instead and what reading the weights must take.

usage: python3 -m kernels.mxfp8_gemv.bench [--json FILE]

cuBLAS: bf16 weights, F.linear or bmm. scaled_mm: FP8 weights with one scale a tensor, 16 rows of x. Triton: the same
MXFP8 operands, tuned over its tiles. read: a kernel that only reads weights and scales, launched dependently. All of
them read as many sets of weights as the L2 does not hold.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as functional

from kernels.mxfp8_gemv import triton_baseline
from kernels.mxfp8_gemv.op import mxfp8_gemv, mxfp8_grouped_gemv
from kernels.testing import gpu, stream, table

# By the name of the layer and how many GPUs share it; see README.md.
SHAPES = {
    "fused_wqa_wkv": (1792, 5120),
    "indexer wq_b": (4096, 1280),
    "engram wkv": (25600, 5120),
    "wq_b TP2": (16384, 1280),
    "wq_b TP4": (8192, 1280),
    "wq_b TP8": (4096, 1280),
    "wo_b TP1": (5120, 8192),
    "wo_b TP2": (5120, 4096),
    "wo_b TP4": (5120, 2048),
    "wo_b TP8": (5120, 1024),
    "shared gate_up TP2": (2304, 5120),
    "shared gate_up TP4": (1152, 5120),
    "shared gate_up TP8": (576, 5120),
    "shared down TP1": (5120, 2304),
    "shared down TP2": (5120, 1152),
    "shared down TP4": (5120, 576),
    "shared down TP8": (5120, 288),
}
ROWS = (1, 6, 8, 16)
# Groups of wo_a at TP4 and TP8, and rows of x.
WO_A = ((2, 1024, 4096), (1, 1024, 4096))
WO_A_ROWS = (1, 6, 8, 16, 17, 32, 33, 64)


def codes(*shape: int) -> torch.Tensor:
    """Random finite codes."""
    return torch.randint(0, 120, shape, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)


def scales(rows: int, k: int, swizzled: bool) -> torch.Tensor:
    """Random scales of moderate size, in either layout."""
    count = -(-rows // 128) * 128 * (-(-k // 128) * 4) if swizzled else rows * k // 32
    return torch.randint(110, 130, (count,), dtype=torch.uint8, device="cuda")


def floor(m: int, n: int, k: int, rate: float) -> float:
    """Microseconds to move x, weights and results once."""
    return (33 / 32 * k * (n + m) + 2 * m * n) / rate * 1e6


def timed(function: Callable[[int], object], count: int) -> float:
    """Microseconds a launch, over `count` sets of weights."""
    return gpu.microseconds(function, count if count >= 12 else 4 * count)


def read_microseconds(values: int, count: int) -> float:
    """Microseconds to read that many values and their scales, over `count` sets of them."""
    sources = [torch.randint(1 << 30, (values * 33 // 128,), dtype=torch.int32, device="cuda") for _ in range(count)]
    return stream.microseconds(sources, count if count >= 12 else 4 * count, dependent=True)


class Plain:
    """One shape, with as many sets of weights as the L2 does not hold."""

    def __init__(self, n: int, k: int) -> None:
        """`n` and `k`: rows and columns of the weights."""
        self.n, self.k = n, k
        self.count = gpu.sets(n * k * 33 // 32)
        self.weights = [codes(n, k) for _ in range(self.count)]
        self.swizzled = [scales(n, k, True) for _ in range(self.count)]
        self.rowwise = [scales(n, k, False) for _ in range(self.count)]
        self.bf16 = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(max(3, self.count // 2 + 1))]
        self.read = read_microseconds(n * k, self.count)

    def times(self, m: int) -> dict[str, float]:
        """Microseconds of every way, for `m` rows of x."""
        n, k, count = self.n, self.k, self.count
        x, x_swizzled, x_rowwise = codes(m, k), scales(m, k, True), scales(m, k, False)
        x16, padded = torch.randn(m, k, device="cuda", dtype=torch.bfloat16), codes(16, k)
        out, one = torch.empty(m, n, device="cuda", dtype=torch.bfloat16), torch.ones((), device="cuda")

        def ours(i: int, dependent: bool) -> None:
            weight, scale = self.weights[i % count], self.swizzled[i % count]
            mxfp8_gemv(x, x_swizzled, weight, scale, swizzled=True, out=out, dependent=dependent)

        def scaled(i: int) -> None:
            weight = self.weights[i % count].t()
            torch._scaled_mm(padded, weight, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        def in_triton(i: int) -> None:
            triton_baseline.mxfp8_gemv(x, x_rowwise, self.weights[i % count], self.rowwise[i % count], out)

        return {
            "us": timed(lambda i: ours(i, False), count),
            "dependent us": timed(lambda i: ours(i, True), count),
            "cuBLAS bf16 us": timed(lambda i: functional.linear(x16, self.bf16[i % len(self.bf16)]), count),
            "scaled_mm us": timed(scaled, count),
            "Triton us": timed(in_triton, count),
        }


def plain(name: str, n: int, k: int, rate: float) -> list[table.Row]:
    """Every number of rows of one shape."""
    shape = Plain(n, k)
    result = []
    for m in ROWS:
        times, least = shape.times(m), floor(m, n, k, rate)
        best = times["dependent us"]
        result.append({
            "shape": f"{name} {n}x{k}",
            "M": m,
            "floor us": least,
            **times,
            "read us": shape.read,
            "share": least / times["us"],
            "dependent share": least / best,
            "dependent / read": best / shape.read,
            "cuBLAS / dependent": times["cuBLAS bf16 us"] / best,
            "scaled_mm / dependent": times["scaled_mm us"] / best,
            "Triton / dependent": times["Triton us"] / best,
        })
    return result


class Grouped:
    """wo_a, beside bmm of bf16."""

    def __init__(self, g: int, n: int, k: int) -> None:
        self.shape = g, n, k
        self.count = gpu.sets(g * n * k * 33 // 32)
        self.weights = [codes(g, n, k) for _ in range(self.count)]
        self.scales = [scales(g * n, k, True) for _ in range(self.count)]
        self.bf16 = [torch.randn(g, n, k, device="cuda", dtype=torch.bfloat16) for _ in range(self.count // 2 + 1)]
        self.read = read_microseconds(g * n * k, self.count)

    def row(self, m: int, rate: float) -> table.Row:
        """Measures `m` rows of x."""
        g, n, k = self.shape
        x = codes(g, m, k).transpose(0, 1)
        words = torch.randint(110, 130, (g, k // 128, -(-m // 4) * 16), dtype=torch.uint8, device="cuda")
        x_scale = words.view(torch.int32).permute(2, 0, 1)[:m]
        x16 = torch.randn(m, g, k, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(m, g, n, device="cuda", dtype=torch.bfloat16)

        def ours(i: int, dependent: bool) -> None:
            weight, scale = self.weights[i % self.count], self.scales[i % self.count]
            mxfp8_grouped_gemv(x, x_scale, weight, scale, swizzled=True, packed=True, out=out, dependent=dependent)

        least = g * floor(m, n, k, rate)
        us = timed(lambda i: ours(i, False), self.count)
        dependent = timed(lambda i: ours(i, True), self.count)
        bmm = timed(lambda i: torch.bmm(x16.transpose(0, 1), self.bf16[i % len(self.bf16)].transpose(1, 2)), self.count)
        return {
            "shape": f"wo_a {g}x{n}x{k}",
            "M": m,
            "floor us": least,
            "us": us,
            "dependent us": dependent,
            "cuBLAS bf16 us": bmm,
            "read us": self.read,
            "share": least / us,
            "dependent share": least / dependent,
            "dependent / read": dependent / self.read,
            "cuBLAS / dependent": bmm / dependent,
        }


def rows(rate: float) -> list[table.Row]:
    """Measures every shape; `rate` is what a copy moves, in bytes a second."""
    result: list[table.Row] = []
    for name, (n, k) in SHAPES.items():
        result += plain(name, n, k, rate)
        torch.cuda.empty_cache()
    for shape in WO_A:
        wo_a = Grouped(*shape)
        result += [wo_a.row(m, rate) for m in WO_A_ROWS]
    return result


if __name__ == "__main__":
    table.main(__doc__, rows)
