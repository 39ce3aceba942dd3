"""What p2p_allreduce computes, and what it leaves in a peer's workspace, in plain numpy."""

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

MOST_RANKS = 8
MOST_BYTES = 512 * 1024
# Of one tensor by the low-latency protocol.
LL_BYTES = 128 * 1024
UNIT_BYTES = 16
MOST_BLOCKS = 64
SIMPLE_UNITS_A_BLOCK = 512
LL_UNITS_A_BLOCK = 128
ROUNDS_BETWEEN_AGINGS = 2**30

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
    return DATA + 2 * world * (MOST_BYTES + 2 * LL_BYTES)


def blocks(units: int, ll: bool = False) -> int:
    """Returns how many blocks share `units` of 16 bytes."""
    return -(-units // (LL_UNITS_A_BLOCK if ll else SIMPLE_UNITS_A_BLOCK))


def data_at(parity: int, sender: int, world: int) -> int:
    """Returns where a sender's data of a parity of rounds begin, in bytes."""
    return DATA + (parity * world + sender) * MOST_BYTES


def words_at(parity: int, sender: int, world: int) -> int:
    """Returns where a sender's words of a parity of rounds begin, in bytes: those of the low-latency protocol."""
    return DATA + 2 * world * MOST_BYTES + (parity * world + sender) * 2 * LL_BYTES


def word_places(units: int) -> NDArray[np.int64]:
    """Returns which 8 bytes of a slot hold which 4 of the first `units` of 16 bytes: [units, 4]."""
    unit = np.arange(units)[:, None]
    pair = unit // 32 * 64 + unit % 32
    return np.asarray(2 * pair + [0, 1, 64, 65], np.int64)


def words(data: bytes, number: int) -> NDArray[np.uint64]:
    """Returns the words that carry data in round `number`, in the order of the data: the round's low bits, the data."""
    return np.frombuffer(data, np.uint32).astype(np.uint64) | np.uint64((number & 0xFFFFFFFF) << 32)


def ages(number: int) -> bool:
    """Whether in round `number` all words of its slot are stored anew, so that none is older than 2^32 rounds."""
    return number % ROUNDS_BETWEEN_AGINGS < 2


def arrival_at(parity: int, block: int, sender: int) -> int:
    """Returns where a sender says that a block's data have arrived, in bytes."""
    return ARRIVALS + ((parity * MOST_BLOCKS + block) * MOST_RANKS + sender) * SECTOR


def arrival(number: int, units: int, dtype: str, ll: bool = False) -> int:
    """Returns the word that says so, of round `number` (from 1) with `units` of 16 bytes of `dtype`."""
    return number << 19 | units << 3 | int(ll) << 2 | TYPES[dtype]


def delivered(
    workspace: NDArray[np.uint8], sender: int, world: int, number: int, data: bytes, dtype: str, ll: bool = False
) -> None:
    """Changes a workspace as the part of `sender` does in round `number`, by one of the protocols."""
    parity, units = number % 2, len(data) // UNIT_BYTES
    begin = words_at(parity, sender, world)
    slot = workspace[begin : begin + 2 * LL_BYTES].view(np.uint64)
    if ages(number):
        slot[:] = words(bytes(LL_BYTES), number - 1)
    if ll:
        slot[word_places(units).ravel()] = words(data, number)
    else:
        begin = data_at(parity, sender, world)
        workspace[begin : begin + len(data)] = np.frombuffer(data, np.uint8)
    word = np.frombuffer(arrival(number, units, dtype, ll).to_bytes(8, "little"), np.uint8)
    for block in range(blocks(units, ll)):
        at = arrival_at(parity, block, sender)
        workspace[at : at + 8] = word


def completed(workspace: NDArray[np.uint8], number: int) -> None:
    """Changes the rank's own workspace as it does when round `number` is complete."""
    workspace[ROUNDS : ROUNDS + 8 * MOST_BLOCKS].view(np.uint64)[:] = number
