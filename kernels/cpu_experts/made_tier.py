"""Tiers and comparisons for tests."""

from typing import Any

import numpy as np

from .layout import Record
from .op import CpuExperts
from .reference import Bytes, Floats


def made(shape: Record, records: dict[int, Bytes], slots: int = 4, experts: int = 8, **more: Any) -> CpuExperts:
    """A tier of two threads, or as `more` says, with these records."""
    more.setdefault("threads", 2)
    tier = CpuExperts(shape.hidden, shape.intermediate, experts, slots, **more)
    for expert, record in records.items():
        tier.set_record(expert, record)
    return tier


def same(got: Floats, want: Floats) -> bool:
    """Whether all bits are equal."""
    return np.array_equal(got.view(np.uint32), want.view(np.uint32))
