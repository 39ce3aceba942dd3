"""What p2p_allreduce computes, and what it leaves in a peer's workspace, in plain numpy."""

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

MOST_RANKS = 8
MOST_BYTES = 512 * 1024
UNIT_BYTES = 16
MOST_BLOCKS = 64
THREADS = 512

# Types by name, as an arrival has them.
TYPES = {"bfloat16": 0, "float16": 1, "float32": 2}

# The layout of a workspace, in bytes: workspace.cuh.
SECTOR = 32
TOLD = 256
ROUNDS = 512
ARRIVALS = 1024
DATA = 65536


def allreduce(parts: Floats, dtype: str) -> Floats:
    """Returns the sum of parts [ranks, n] in order of rank, in fp32, rounded once to `dtype`: [n], to the bit."""
    total = parts[0].astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts[1:]:
            total = total + part
        return rounded(total, dtype)


def rounded(values: Floats, dtype: str) -> Floats:
    """Returns the nearest numbers of a type of TYPES, as float32. Raises KeyError where it is none."""
    if dtype == "bfloat16":
        return formats.round_bf16(values)
    return values.astype({"float16": np.float16, "float32": np.float32}[dtype]).astype(np.float32)


def bound(parts: Doubles, dtype: str) -> Doubles:
    """Returns how far an output may be from the exact sum of parts [ranks, n]: [n].

    Every addition rounds once, relative to what is added up; then comes half a step of the type.
    """
    magnitudes = np.abs(parts).sum(axis=0)
    step = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0.0}[dtype]
    least = {"bfloat16": 2.0**-134, "float16": 2.0**-25, "float32": 0.0}[dtype]
    sums = (len(parts) - 1) * 2.0**-24 * magnitudes
    return np.asarray(sums + step * (np.abs(parts.sum(axis=0)) + sums) + least)


def workspace_bytes(world: int) -> int:
    """Returns the size of a rank's workspace, in bytes."""
    return DATA + 2 * world * MOST_BYTES


def blocks(units: int) -> int:
    """Returns how many blocks share `units` of 16 bytes."""
    return min(-(-units // THREADS), MOST_BLOCKS)


def data_at(parity: int, sender: int, world: int) -> int:
    """Returns where a sender's data of a parity of rounds begin, in bytes."""
    return DATA + (parity * world + sender) * MOST_BYTES


def arrival_at(parity: int, block: int, sender: int) -> int:
    """Returns where a sender says that a block's data have arrived, in bytes."""
    return ARRIVALS + ((parity * MOST_BLOCKS + block) * MOST_RANKS + sender) * SECTOR


def arrival(number: int, units: int, dtype: str) -> int:
    """Returns the word that says so, of round `number` (from 1) with `units` of 16 bytes of `dtype`."""
    return number << 18 | units << 2 | TYPES[dtype]


def delivered(workspace: NDArray[np.uint8], sender: int, world: int, number: int, data: bytes, dtype: str) -> None:
    """Changes a workspace as the part of `sender` does in round `number`."""
    parity, units = number % 2, len(data) // UNIT_BYTES
    begin = data_at(parity, sender, world)
    workspace[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
    word = np.frombuffer(arrival(number, units, dtype).to_bytes(8, "little"), np.uint8)
    for block in range(blocks(units)):
        at = arrival_at(parity, block, sender)
        workspace[at : at + 8] = word


def completed(workspace: NDArray[np.uint8], number: int) -> None:
    """Changes the rank's own workspace as it does when round `number` is complete."""
    workspace[ROUNDS : ROUNDS + 8 * MOST_BLOCKS].view(np.uint64)[:] = number
