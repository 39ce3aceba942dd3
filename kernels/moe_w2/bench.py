"""Times moe_w2 on this GPU, beside what a user would take instead and what reading the weights must take.

usage: python3 -m kernels.moe_w2.bench [--json FILE]

Rows choose distinct experts at random, others in every launch, so that hardly any weights are in the L2. The floor is
the bytes of all experts that were chosen, of x and of the results. grouped bf16: torch's grouped GEMM of weights that
are bfloat16 already; dequantize: to bfloat16 with torch, of the chosen experts, ahead of it. Triton: the same operands,
tuned over its tiles, and given the grouping. FP4: every expert is promoted.
"""

import torch

from kernels.moe_w2 import torch_baseline, triton_baseline
from kernels.moe_w2.op import Slots, moe_w2
from kernels.testing import gpu, table

# Hidden and intermediate size, experts and top-k of a model, and how many GPUs share an expert.
MODELS = {
    "DeepSeek-V4-Flash TP1": (4096, 2048, 256, 6, 1),
    "DeepSeek-V4.1-Flash TP2": (5120, 2304, 384, 6, 2),
    "DeepSeek-V4.1-Flash TP4": (5120, 2304, 384, 6, 4),
    "GLM-5.2 TP4": (6144, 2048, 256, 8, 4),
    "Kimi-K2.7 TP4": (7168, 2048, 384, 8, 4),
}
ROWS = (1, 2, 6, 8, 16)
# Where Triton and torch run too, which take most of the time to tune and to fill memory.
MODELS_OF_OTHERS = ("DeepSeek-V4.1-Flash TP4", "GLM-5.2 TP4")
ROWS_OF_OTHERS = (1, 6, 16)
LAUNCHES = 16


def routes(m: int, top: int, count: int) -> torch.Tensor:
    """int32 [m, top], distinct in a row."""
    return torch.stack([torch.randperm(count, device="cuda")[:top] for _ in range(m)]).int()


def planes(count: int, parts: int, n: int, k: int, divisor: int) -> torch.Tensor:
    """Random bytes [count, parts, N * K / divisor]."""
    return torch.randint(0, 256, (count, parts, n * k // divisor), dtype=torch.uint8, device="cuda")


def scales(count: int, parts: int, n: int, k: int) -> torch.Tensor:
    """Random scales around 1."""
    return torch.randint(116, 130, (count, parts, n * k // 32), dtype=torch.uint8, device="cuda")


def by_expert(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The experts of pairs, where the pairs of each begin, and in the end of all, and the pairs by expert; int32."""
    flat = ids.flatten()
    used, counts = torch.unique(flat, return_counts=True)
    first = torch.nn.functional.pad(torch.cumsum(counts, 0), (1, 0))
    return used.int(), first.int(), torch.argsort(flat, stable=True).int()


class Matrix:
    """One matrix of every expert of a model; `parts` of it."""

    def __init__(self, name: str, n: int, k: int, parts: int, experts: int, top: int) -> None:
        self.name, self.n, self.k, self.parts, self.experts, self.top = name, n, k, parts, experts, top
        self.table = torch.arange(experts, dtype=torch.int32, device="cuda")
        self.base = Slots(planes(experts, parts, n, k, 4), scales(experts, parts, n, k), self.table)
        few = min(experts, 192)
        self.delta = Slots(planes(few, parts, n, k, 2), None, self.table % few)
        self.missing = torch.zeros(1, dtype=torch.int32, device="cuda")

    def x(self, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and scales of x: the rows of w1 and w3 are for all of their experts, those of w2 for one."""
        shape = (m, self.k) if self.parts == 2 else (m, self.top, self.k)
        codes = torch.randint(0, 120, shape, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
        scale = torch.randint(116, 130, (*shape[:-1], self.k // 32), dtype=torch.uint8, device="cuda")
        return codes, scale

    def bytes(self, chosen: list[torch.Tensor], m: int, bits_by_32: int) -> float:
        """What a launch must move, on average; `bits_by_32`: bytes of 32 weights with their scale."""
        used = sum(len(torch.unique(ids)) for ids in chosen) / len(chosen)
        pairs = m * self.top
        of_x = 33 / 32 * self.k * (m if self.parts == 2 else pairs)
        return used * self.parts * self.n * self.k * bits_by_32 / 32 + of_x + 2 * pairs * self.parts * self.n

    def row(self, m: int, rate: float) -> table.Row:
        """Measures `m` rows."""
        chosen = [routes(m, self.top, self.experts) for _ in range(LAUNCHES)]
        x = self.x(m)
        out = torch.empty(m, self.top, self.parts * self.n, dtype=torch.bfloat16, device="cuda")

        def ours(delta: Slots | None, dependent: bool, routed: bool) -> float:
            def step(i: int) -> None:
                options = {"dependent": dependent, "routed": routed}
                moe_w2(*x, chosen[i], self.base, delta, missing=self.missing, out=out, **options)

            return gpu.microseconds(step, LAUNCHES)

        moved, moved_fp4 = self.bytes(chosen, m, 9), self.bytes(chosen, m, 17)
        least, least_fp4 = moved / rate * 1e6, moved_fp4 / rate * 1e6
        plain, dependent, routed = ours(None, False, False), ours(None, True, False), ours(None, True, True)
        fp4 = ours(self.delta, True, True)
        row: table.Row = {
            "shape": f"{self.name} {self.parts}x{self.n}x{self.k}",
            "M": m,
            "floor us": least,
            "us": plain,
            "dependent us": dependent,
            "routed us": routed,
            "FP4 floor us": least_fp4,
            "FP4 routed us": fp4,
            "share": least / plain,
            "dependent share": least / dependent,
            "routed share": least / routed,
            "FP4 routed share": least_fp4 / fp4,
        }
        if m in ROWS_OF_OTHERS and self.name.startswith(MODELS_OF_OTHERS):
            others = self.others(m, chosen, x[0], x[1])
            row |= others
            row |= {f"{name.removesuffix(' us')} / routed": value / routed for name, value in others.items()}
        return row

    def others(self, m: int, chosen: list[torch.Tensor], x: torch.Tensor, x_scale: torch.Tensor) -> dict[str, float]:
        """Microseconds of what a user would take instead."""
        n, k, pairs = self.parts * self.n, self.k, m * self.top
        groups = [by_expert(ids) for ids in chosen]
        flat = self.base.planes.view(self.experts, -1)
        assert self.base.scales is not None
        flat_scales = self.base.scales.view(self.experts, -1)
        out = torch.empty(m, self.top, n, dtype=torch.bfloat16, device="cuda")
        rows, row_scales = x.reshape(-1, k), x_scale.reshape(-1, k // 32)
        out_by_row = out if self.parts == 2 else out.view(-1, 1, n)

        def in_triton(i: int) -> None:
            triton_baseline.moe_w2(rows, row_scales, flat, flat_scales, groups[i], out_by_row)

        by_pair = torch.randn(pairs, k, device="cuda", dtype=torch.bfloat16)
        most = max(len(used) for used, _, _ in groups)
        sets = max(1, min(LAUNCHES, (24 << 30) // (most * n * k * 2)))
        weights = torch.empty(sets, most, n, k, device="cuda", dtype=torch.bfloat16).normal_()

        def in_bf16(i: int) -> None:
            used, first, _ = groups[i]
            torch_baseline.grouped(by_pair, weights[i % sets, : len(used)], first[1:])

        def dequantized(i: int) -> None:
            used, first, _ = groups[i]
            values = torch_baseline.dequantize(flat[used.long()], flat_scales[used.long()], n, k)
            torch_baseline.grouped(by_pair, values, first[1:])

        return {
            "Triton us": gpu.microseconds(in_triton, LAUNCHES),
            "grouped bf16 us": gpu.microseconds(in_bf16, LAUNCHES),
            "dequantize + grouped us": gpu.microseconds(dequantized, 2, 5),
        }


def rows(rate: float) -> list[table.Row]:
    """Measures every shape; `rate` is what a copy moves, in bytes a second."""
    result: list[table.Row] = []
    for name, (hidden, intermediate, experts, top, gpus) in MODELS.items():
        shard = intermediate // gpus
        for what, n, k, parts in (("w1 w3", shard, hidden, 2), ("w2", hidden, shard, 1)):
            matrix = Matrix(f"{name} {what}", n, k, parts, experts, top)
            result += [matrix.row(m, rate) for m in ROWS]
            del matrix
            torch.cuda.empty_cache()
    return result


if __name__ == "__main__":
    table.main(__doc__, rows)
