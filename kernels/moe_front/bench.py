"""Times moe_front on this GPU, beside the same in torch's operators and in Triton.

usage: python3 -m kernels.moe_front.bench [--json FILE]

Inputs are in the L2, as the kernel ahead leaves them. What is compared has the same outputs: it is checked first.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as functional

from kernels.moe_front import torch_baseline, triton_baseline
from kernels.moe_front.op import TOP, MoeFront, empty, moe_front
from kernels.testing import gpu, table

EXPERTS, K = 384, 5120
# Tokens and alignment.
BATCHES = ((1, 64), (6, 64), (8, 64), (16, 64), (32, 64), (64, 64), (6, 128), (16, 128))
_SETS, _LAUNCHES = 4, 200

Front = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, MoeFront], None]


def floor(m: int, r: int, rate: float) -> float:
    """Microseconds to read logits and activations once, and to write all rows of tokens and m_indices."""
    read = m * (4 * EXPERTS + 2 * K) + 4 * EXPERTS
    return (read + TOP * m * (K + K // 128 + 12) + 4 * r) / rate * 1e6


def distinct(m: int, bias: torch.Tensor) -> torch.Tensor:
    """Returns random logits by which no choice is so close that another logarithm would make another."""
    while True:
        logits = 3 * torch.randn(m, EXPERTS, device="cuda")
        best = (functional.softplus(logits).sqrt() + bias).topk(TOP + 1).values
        if (best[:, :-1] - best[:, 1:] > 1e-5).all():
            return logits


def agrees(front: Front, logits: torch.Tensor, bias: torch.Tensor, x: torch.Tensor, alignment: int) -> None:
    """Raises AssertionError unless `front` has the outputs of moe_front, weights to 1e-5."""
    ours, theirs = (empty(x, EXPERTS, alignment) for _ in range(2))
    moe_front(logits, bias, x, alignment=alignment, out=ours)
    front(logits, bias, x, alignment, theirs)
    live = ours.inv_perm.flatten().long()
    for name, a, b in zip(MoeFront._fields, ours, theirs, strict=True):
        if name == "topk_weights":
            torch.testing.assert_close(a, b, rtol=1e-5, atol=0)
        else:
            rows = live if name in ("a", "a_scale") else slice(None)
            assert torch.equal(gpu.bits(a)[rows], gpu.bits(b)[rows]), f"{front.__module__}: {name}"


def row(m: int, alignment: int, rate: float) -> table.Row:
    """Measures one batch."""
    bias = 0.3 * torch.randn(EXPERTS, device="cuda")
    logits = [distinct(m, bias) for _ in range(_SETS)]
    x = [torch.randn(m, K, device="cuda", dtype=torch.bfloat16) for _ in range(_SETS)]
    outs = [empty(x[0], EXPERTS, alignment) for _ in range(_SETS)]

    def timed(front: Callable[[int], object]) -> float:
        return gpu.microseconds(lambda i: front(i % _SETS), _LAUNCHES)

    def ours(dependent: bool) -> float:
        return timed(lambda i: moe_front(logits[i], bias, x[i], alignment=alignment, out=outs[i], dependent=dependent))

    def theirs(front: Front) -> float:
        agrees(front, logits[0], bias, x[0], alignment)
        return timed(lambda i: front(logits[i], bias, x[i], alignment, outs[i]))

    plain, dependent = ours(dependent=False), ours(dependent=True)
    in_torch, in_triton = theirs(torch_baseline.moe_front), theirs(triton_baseline.moe_front)
    return {
        "M": m,
        "alignment": alignment,
        "floor us": floor(m, outs[0].a.shape[0], rate),
        "us": plain,
        "dependent us": dependent,
        "torch us": in_torch,
        "Triton us": in_triton,
        "torch / plain": in_torch / plain,
        "Triton / plain": in_triton / plain,
        "Triton / dependent": in_triton / dependent,
    }


def rows(rate: float) -> list[table.Row]:
    """Measures every batch; `rate` is what a copy moves, in bytes a second."""
    return [row(m, alignment, rate) for m, alignment in BATCHES]


if __name__ == "__main__":
    table.main(__doc__, rows)
