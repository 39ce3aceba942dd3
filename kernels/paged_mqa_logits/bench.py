"""Times paged_mqa_logits on this GPU, beside Triton and torch, and what reading the keys once must take.

usage: python3 -m kernels.paged_mqa_logits.bench [--json FILE]

Pages of 128 keys in a random order; as many sets of them in turn as the L2 does not hold. Triton: the same FP8 cache,
tuned over its tiles. torch: the pages gathered, bf16 products. Neither is there for MXFP4. What a user would take on an
H200, DeepGEMM, is not part of torch: absent.
"""

from collections.abc import Callable

import torch

from kernels.paged_mqa_logits import triton_baseline
from kernels.paged_mqa_logits.op import HEADS, paged_mqa_logits, paged_mqa_logits_metadata
from kernels.testing import gpu, table

PAGE = 128
SHAPES = [(requests, context) for context in (4096, 32768, 131072) for requests in (1, 8)]
ROWS = (1, 6, 8)
# Logits beyond which torch is not asked: its products would not fit.
_MOST_FOR_TORCH = 1 << 20


def random_bytes(*shape: int, low: int = 0, high: int = 256) -> torch.Tensor:
    """Random uint8 on the GPU."""
    return torch.randint(low, high, shape, dtype=torch.uint8, device="cuda")


class Case:
    """Requests of one length, with as many sets of pages as the L2 does not hold."""

    def __init__(self, requests: int, context: int, next_n: int, mxfp4: bool, page: int = PAGE) -> None:
        """Makes random operands; `context` a multiple of `page`."""
        self.requests, self.context, self.next_n, self.mxfp4 = requests, context, next_n, mxfp4
        self.key_bytes = 68 if mxfp4 else 132
        pages = requests * context // page
        self.sets = gpu.sets(pages * page * self.key_bytes)
        # Exponents below those of NaN; of the scales, moderate ones: bytes that make no huge or subnormal fp32.
        self.cache = random_bytes(self.sets * pages, page * self.key_bytes, high=60)
        order = torch.randperm(self.sets * pages, device="cuda").int()
        self.tables = list(order.view(self.sets, requests, context // page).unbind())
        self.cache = self.cache.view(-1, page, 1, self.key_bytes)
        shape = (requests, next_n, HEADS)
        self.q = random_bytes(*shape, 64 if mxfp4 else 128, high=120)
        self.q_scale = random_bytes(*shape, 4, low=120, high=130).view(torch.int32).squeeze(-1) if mxfp4 else None
        self.q = self.q if mxfp4 else self.q.view(torch.float8_e4m3fn)
        self.weights = torch.randn(requests * next_n, HEADS, device="cuda")
        contexts = torch.arange(context - next_n + 1, context + 1, device="cuda", dtype=torch.int32)
        self.contexts = contexts.repeat(requests, 1)
        slots = torch.cuda.get_device_properties(0).multi_processor_count
        self.schedule = paged_mqa_logits_metadata(self.contexts, page, slots)
        self.out = torch.empty(requests * next_n, context, device="cuda")

    def timed(self, function: Callable[[torch.Tensor], object]) -> float:
        """Microseconds of `function`, called with one set's tables after another's."""
        launches = self.sets if self.sets >= 12 else 4 * self.sets
        return gpu.microseconds(lambda i: function(self.tables[i % self.sets]), min(launches, 200))

    def ours(self, tables: torch.Tensor, dependent: bool = False) -> None:
        """The kernel of the family."""
        paged_mqa_logits(
            self.q,
            self.q_scale,
            self.cache,
            self.weights,
            self.contexts,
            tables,
            self.schedule,
            self.context,
            out=self.out,
            dependent=dependent,
        )

    def in_triton(self, tables: torch.Tensor) -> None:
        """FP8 only."""
        triton_baseline.paged_mqa_logits(self.q, self.cache, self.weights, self.contexts, tables, self.out)

    def in_torch(self, tables: torch.Tensor) -> torch.Tensor:
        """FP8 only."""
        page = self.cache.shape[1]
        pages = self.cache.view(-1, page * self.key_bytes)[tables.long()]
        keys = pages[..., : page * 128].view(torch.float8_e4m3fn).to(torch.bfloat16).reshape(self.requests, -1, 128)
        scales = pages[..., page * 128 :].contiguous().view(torch.float32).view(self.requests, 1, -1)
        q = self.q.to(torch.bfloat16).view(self.requests, -1, 128)
        products = torch.relu_(q @ keys.transpose(1, 2)).view(self.requests, self.next_n, HEADS, -1)
        weights = self.weights.to(torch.bfloat16).view(self.requests, self.next_n, 1, HEADS)
        return (weights @ products).squeeze(2) * scales

    def row(self, rate: float) -> table.Row:
        """Measures every way; `rate` is bytes a second."""
        least = self.requests * self.context * self.key_bytes / rate * 1e6
        us, dependent = self.timed(self.ours), self.timed(lambda tables: self.ours(tables, True))
        result: table.Row = {
            "keys": "MXFP4" if self.mxfp4 else "FP8",
            "requests": self.requests,
            "context": self.context,
            "next_n": self.next_n,
            "floor us": least,
            "us": us,
            "dependent us": dependent,
            "share": least / us,
            "dependent share": least / dependent,
        }
        if not self.mxfp4:
            result["Triton us"] = self.timed(self.in_triton)
            if self.requests * self.context * self.next_n <= _MOST_FOR_TORCH:
                result["torch us"] = self.timed(self.in_torch)
        return result


def schedule_row(requests: int, rate: float) -> table.Row:
    """The schedule alone; its floor is that of its bytes."""
    contexts = torch.randint(0, 100_000, (requests, 6), dtype=torch.int32, device="cuda")
    slots = torch.cuda.get_device_properties(0).multi_processor_count
    out = paged_mqa_logits_metadata(contexts, PAGE, slots)
    us = gpu.microseconds(lambda _: paged_mqa_logits_metadata(contexts, PAGE, slots, out=out), 100)
    return {
        "keys": "schedule",
        "requests": requests,
        "next_n": 6,
        "floor us": (contexts.numel() * 4 + out.numel() * 4) / rate * 1e6,
        "us": us,
    }


def rows(rate: float) -> list[table.Row]:
    """Measures every shape; `rate` is what a copy moves, in bytes a second."""
    result: list[table.Row] = []
    for mxfp4 in (False, True):
        for requests, context in SHAPES:
            for next_n in ROWS:
                result.append(Case(requests, context, next_n, mxfp4).row(rate))
                torch.cuda.empty_cache()
    return result + [schedule_row(requests, rate) for requests in (1, 64, 4096)]


if __name__ == "__main__":
    table.main(__doc__, rows)
