"""Addresses of arrays and tensors, checked: numpy's and torch's, which need not be there."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

# numpy has bfloat16 as ml_dtypes' type or as words.
_NAMES = {"bfloat16": ("bfloat16", "uint16"), "float32": ("float32",), "int32": ("int32",), "uint8": ("uint8",)}


@dataclass(frozen=True)
class Memory:
    """Where something lies, how many bytes it has, and the object that keeps it there."""

    address: int
    shape: tuple[int, ...]
    size: int
    owner: object

    def overlaps(self, other: "Memory") -> bool:
        """Whether they have a byte in common."""
        return self.address < other.address + other.size and other.address < self.address + self.size


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "is_contiguous")


def of(value: Any, name: str, dtype: str, shape: tuple[int | None, ...], *, written: bool = False) -> Memory:
    """The memory of an array or a tensor in this machine's RAM.

    `dtype` is bfloat16, float32, int32 or uint8, `shape` what it must have, None where anything will do; `written` when
    it will be. Raises TypeError for what is neither or of another dtype or byte order, and ValueError for another
    shape, for what is not contiguous, on a GPU, not aligned to its elements, or read only.
    """
    if _is_tensor(value):
        kind = str(value.dtype).removeprefix("torch.")
        contiguous, address, writable = value.is_contiguous(), None, True
        if value.device.type != "cpu":
            raise ValueError(f"{name} is on {value.device}; expected a tensor in host memory")
    elif isinstance(value, np.ndarray):
        if not value.dtype.isnative:
            raise TypeError(f"{name} has its bytes in another order than this machine; expected native {dtype}")
        kind, contiguous, writable = value.dtype.name, value.flags.c_contiguous, value.flags.writeable
        address = value.__array_interface__["data"][0] if value.dtype.names is None else None
    else:
        raise TypeError(f"{name} is {type(value).__name__}; expected a numpy array or a torch tensor")
    if kind not in _NAMES[dtype]:
        raise TypeError(f"{name} is {kind}; expected {' or '.join(_NAMES[dtype])}")
    found = tuple(int(n) for n in value.shape)
    if len(found) != len(shape) or any(want not in (None, n) for n, want in zip(found, shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} is {list(found)}; expected [{wanted}]")
    if not contiguous:
        raise ValueError(f"{name} is not contiguous; expected rows without gaps")
    if written and not writable:
        raise ValueError(f"{name} is read only; expected memory to write to")
    if address is None:
        address = value.data_ptr()
    element = {"bfloat16": 2, "uint8": 1}.get(dtype, 4)
    if address % element:
        raise ValueError(f"{name} is at {address:#x}; expected a multiple of {element}")
    return Memory(address, found, math.prod(found) * element, value)
