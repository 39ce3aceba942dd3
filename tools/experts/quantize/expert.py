"""Quantizes an expert into its slots, in machine code."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.common import planes
from tools.experts.checkpoint.schemes import Matrix
from tools.experts.native import codec
from tools.experts.quantize import facts

Bytes = NDArray[np.uint8]


def slot_bytes(hidden: int, intermediate: int, delta: str | None) -> int:
    """Bytes of an expert's delta slot: "fp4" or "quintal"; None is 0."""
    if delta is None:
        return 0
    return planes.fp4_slot(hidden, intermediate) if delta == "fp4" else planes.quintal_slot(hidden, intermediate)


def quantize(
    matrices: Sequence[Matrix],
    zero_mode: str,
    base: Bytes,
    delta: Bytes | None = None,
    kind: str | None = None,
    isa: str = "",
) -> list[facts.Counts]:
    """Quantizes w1, w3 and w2 of an expert; returns the counts of each.

    Args:
        matrices: w1, w3, w2.
        zero_mode: of facts.ZERO_MODES.
        base: the base slot, which is filled.
        delta: the delta slot, which is filled.
        kind: of facts.DELTAS; None where there is no delta.
        isa: one of codec.isas(), "" for the best; all give the same bytes.

    Raises ValueError, naming the tensor, for scales or weights that cannot be quantized, and for slots of other sizes.
    """
    at = behind = 0
    empty = np.empty(0, dtype=np.uint8)
    counts = []
    for one in matrices:
        of_codes, of_scales = planes.codes_bytes(one.rows, one.columns), planes.scales_bytes(one.rows, one.columns)
        of_delta = 0
        if kind is not None:
            bytes_of = planes.nibbles_bytes if kind == "fp4" else planes.quintal_bytes
            of_delta = bytes_of(one.rows, one.columns)
        try:
            numbers = codec.quantize(
                one.scheme, one.codes, one.scales, one.scale_2, one.rows, one.columns, zero_mode,
                base[at : at + of_codes], base[at + of_codes : at + of_codes + of_scales],
                kind or "", empty if delta is None else delta[behind : behind + of_delta], isa,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"{one.name}: {error}") from None
        counts.append(facts.Counts.of(numbers))
        at += of_codes + of_scales
        behind += of_delta
    if at != base.size or behind != (0 if delta is None else delta.size):
        raise ValueError(
            f"slots of {base.size} and {0 if delta is None else delta.size} bytes; expected {at} and {behind}"
        )
    return counts
