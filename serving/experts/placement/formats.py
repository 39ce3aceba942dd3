"""How many bytes an expert takes in each format."""

import math
from dataclasses import dataclass

from serving.experts.placement.problem import PlanError


@dataclass(frozen=True)
class Format:
    """A format of the routed experts' weights.

    Attributes:
        name: as plans and command lines have it.
        numerator: bytes for `denominator` weights, scales included.
        denominator: see there.
        why: what the bytes are.
    """

    name: str
    numerator: int
    denominator: int
    why: str


FORMATS = {
    one.name: one
    for one in (
        Format("w2", 9, 32, "2-bit planes (8 B a block of 32) and one UE8M0 scale byte a block"),
        Format("mxfp4", 17, 32, "E2M1 (16 B a block of 32) and one UE8M0 scale byte a block"),
        Format("nvfp4", 9, 16, "E2M1 (8 B a block of 16) and one E4M3 scale byte a block"),
        Format("fp8", 4097, 4096, "E4M3 and one float32 scale a block of 128 x 128"),
        Format("bf16", 2, 1, "two bytes a weight"),
    )
}


def cell_bytes(form: str, hidden: int, intermediate: int) -> int:
    """Bytes of one expert (w1, w3 [intermediate, hidden] and w2 [hidden, intermediate]) in a format.

    Raises PlanError for an unknown format, or a geometry that has no whole number of bytes in it.
    """
    if form not in FORMATS:
        raise PlanError(f"{form!r} is no format of cells; there are {', '.join(FORMATS)}")
    found = FORMATS[form]
    weights = 3 * hidden * intermediate
    if weights <= 0:
        raise PlanError(f"geometry: expected hidden and intermediate sizes from 1 on, found {hidden} x {intermediate}")
    if weights % (found.denominator // math.gcd(found.denominator, found.numerator)):
        raise PlanError(f"{form}: 3 x {hidden} x {intermediate} weights are no whole number of its blocks")
    return weights * found.numerator // found.denominator
