"""Times kv_record and kv_record_key on this GPU, beside the same in Triton and compiled by torch.

usage: python3 -m kernels.kv_record.bench [--json FILE]

Rows and caches are out of the L2. The floor is to read rows, slots, positions, cosines and sines, and to write records.
What is compared must leave the bytes that the operators do, but for three in a hundred: sums have other orders, and
torch's compiler divides so that what is half way between two codes is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernels.kv_record import torch_baseline, triton_baseline
from kernels.kv_record.op import DIMS, QUERY_DIMS, ROPE_DIMS, kv_record, kv_record_key
from kernels.testing import gpu, table

# Rows a page, as vLLM has them: of the sliding window, of the compressed cache and of the indexer.
PAGE = {528: 32, 288: 128, 68: 128}
# One request and eight with five drafts, and a chunk of a prefill.
COUNTS = (6, 48, 8192)
EPS = 1e-6
# Of a query, on one of four GPUs.
HEADS = 16
_KNOWN = 1 << 16
_MOST_SETS = 200

Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float], object]


@dataclass(frozen=True)
class Set:
    """Rows and a cache for them, of which no other set has a part."""

    rows: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    cache: torch.Tensor


def ours(dependent: bool) -> Write:
    """The operators, by the arguments of the baselines."""

    def write(
        rows: torch.Tensor,
        positions: torch.Tensor,
        cos_sin: torch.Tensor,
        slots: torch.Tensor,
        weight: torch.Tensor,
        cache: torch.Tensor,
        eps: float,
    ) -> None:
        if cache.shape[2] == 68:
            kv_record_key(rows, positions, cos_sin, slots, weight, cache, eps=eps, dependent=dependent)
        else:
            kv_record(rows, positions, cos_sin, slots, cache, dependent=dependent)

    return write


def cos_sin() -> torch.Tensor:
    """A table of cosines and sines."""
    frequencies = 10000.0 ** (-torch.arange(ROPE_DIMS // 2, dtype=torch.float64, device="cuda") / 32)
    angles = torch.arange(_KNOWN, dtype=torch.float64, device="cuda")[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).float()


def new_set(width: int, count: int) -> Set:
    """Random rows to slots in no order."""
    page = PAGE[width]
    pages = -(-count // page)
    return Set(
        torch.randn(count, DIMS[width], device="cuda").bfloat16(),
        torch.randint(0, _KNOWN, (count,), device="cuda"),
        torch.randperm(pages * page, device="cuda")[:count],
        torch.zeros(pages, page, width, dtype=torch.uint8, device="cuda"),
    )


def agrees(write: Write, one: Set, angles: torch.Tensor, weight: torch.Tensor) -> None:
    """Raises AssertionError unless `write` leaves the bytes of the operators, but for three in a hundred."""
    caches = []
    for each in (ours(dependent=False), write):
        cache = torch.zeros_like(one.cache)
        each(one.rows, one.positions, angles, one.slots, weight, cache, EPS)
        caches.append(cache)
    share = (caches[0] != caches[1]).float().mean().item()
    assert share < 0.03, f"{share:.1%} of the bytes differ"


def row(width: int, count: int, rate: float) -> table.Row:
    """Measures one record and number of rows."""
    angles, weight = cos_sin(), torch.randn(128, device="cuda").bfloat16()
    read = 2 * DIMS[width] + 16 + 4 * ROPE_DIMS
    sets = [new_set(width, count) for _ in range(gpu.sets(count * (read + width), most=_MOST_SETS))]
    launches = max(len(sets), 50)

    def timed(write: Write) -> float:
        agrees(write, sets[0], angles, weight)

        def step(i: int) -> None:
            one = sets[i % len(sets)]
            write(one.rows, one.positions, angles, one.slots, weight, one.cache, EPS)

        return gpu.microseconds(step, launches)

    def with_queries(dependent: bool) -> float:
        """Microseconds when the queries of the same tokens are rotated too."""
        queries = [torch.randn(count, HEADS, QUERY_DIMS, device="cuda").bfloat16() for _ in sets]

        def step(i: int) -> None:
            one = sets[i % len(sets)]
            kv_record(
                one.rows, one.positions, angles, one.slots, one.cache,
                queries=queries[i % len(sets)], dependent=dependent,
            )  # fmt: skip

        return gpu.microseconds(step, launches)

    floor = count * (read + width) / rate * 1e6
    plain, dependent = timed(ours(dependent=False)), timed(ours(dependent=True))
    in_triton = timed(triton_baseline.write)
    torch._dynamo.reset()  # or it stops compiling for yet another shape
    compiled = timed(torch.compile(torch_baseline.write, dynamic=False))
    result: table.Row = {
        "record": width,
        "rows": count,
        "floor us": floor,
        "us": plain,
        "dependent us": dependent,
        "share": floor / plain,
        "dependent share": floor / dependent,
        "Triton us": in_triton,
        "torch.compile us": compiled,
        "Triton / plain": in_triton / plain,
        "torch.compile / plain": compiled / plain,
    }
    if width == 528:
        result["with queries us"] = with_queries(dependent=False)
        result["with queries dependent us"] = with_queries(dependent=True)
    return result


def rows(rate: float) -> list[table.Row]:
    """Measures every record; `rate` is what a copy moves, in bytes a second."""
    return [row(width, count, rate) for width in PAGE for count in COUNTS]


if __name__ == "__main__":
    table.main(__doc__, rows)
