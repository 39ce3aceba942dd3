"""How an MXFP4 expert lies in memory for the CPU tier.

A superblock is 16 rows by 128 inputs in 1088 bytes, 17 cache lines:

    bytes    0..63     scales: [block 4][row 16], UE8M0; block b scales inputs 32 b .. 32 b + 31
    bytes   64..1087   codes: [block 4][quarter 4][row 16][byte 4]; byte j of quarter q of block b of a row has
                       inputs 32 b + 8 q + 2 j in its low nibble and 32 b + 8 q + 2 j + 1 in its high nibble

so that 64 bytes are one 32-bit word of each of 16 rows: the lane of a vector is the row, and nothing is ever summed
across lanes. The bytes are those of the checkpoint in another order, none of them changed.

A matrix [rows, inputs] is its superblocks, those of 16 rows beside each other: [rows / 16][inputs / 128]. Where inputs
are no multiple of 128, as those of w2 in a shard, the last superblock of 16 rows is filled up with codes and scales of
0; such inputs add exactly nothing. The record of an expert is its matrices w1 [intermediate, hidden], w3 [intermediate,
hidden] and w2 [hidden, intermediate], in this order, without anything between. Records begin at a multiple of 64 bytes
in memory.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS, INPUTS = 16, 128
BLOCK = 32
BLOCKS = INPUTS // BLOCK
SCALE_BYTES = BLOCKS * ROWS
SUPERBLOCK = SCALE_BYTES + ROWS * INPUTS // 2
ALIGNMENT = 64

MATRICES = ("w1", "w3", "w2")

Bytes = NDArray[np.uint8]


def matrix_bytes(rows: int, inputs: int) -> int:
    """Bytes of a packed matrix.

    Raises ValueError when `rows` is no multiple of 16 or `inputs` none of 32.

    >>> matrix_bytes(2304, 5120)
    6266880
    """
    if rows <= 0 or rows % ROWS or inputs <= 0 or inputs % BLOCK:
        raise ValueError(f"a matrix of {rows} x {inputs}; expected multiples of {ROWS} rows and {BLOCK} inputs")
    return rows // ROWS * -(-inputs // INPUTS) * SUPERBLOCK


@dataclass(frozen=True)
class Record:
    """Sizes of an expert's record.

    hidden is a multiple of 128; intermediate, the inputs of w2, of 32. Raises ValueError otherwise.
    """

    hidden: int
    intermediate: int

    def __post_init__(self) -> None:
        for name, value, unit in (("hidden", self.hidden, INPUTS), ("intermediate", self.intermediate, BLOCK)):
            if value <= 0 or value % unit:
                raise ValueError(f"{name} is {value}; expected a positive multiple of {unit}")

    def shape(self, matrix: str) -> tuple[int, int]:
        """Rows and inputs of "w1", "w3" or "w2"; KeyError for another name."""
        up, down = (self.intermediate, self.hidden), (self.hidden, self.intermediate)
        return {"w1": up, "w3": up, "w2": down}[matrix]

    def matrix_bytes(self, matrix: str) -> int:
        """Bytes of one of the matrices."""
        return matrix_bytes(*self.shape(matrix))

    def offset(self, matrix: str) -> int:
        """Where one of the matrices begins in the record."""
        return sum(self.matrix_bytes(other) for other in MATRICES[: MATRICES.index(matrix)])

    @property
    def size(self) -> int:
        """Bytes of the record: hidden * (2 * intermediate + inputs of w2, filled up to 128) * 17 / 32.

        >>> Record(5120, 2304).size
        18800640
        """
        return sum(map(self.matrix_bytes, MATRICES))


def _checked(codes: Bytes, scales: Bytes, rows: int, inputs: int, what: str) -> None:
    for name, array, shape in (("codes", codes, (rows, inputs // 2)), ("scales", scales, (rows, inputs // BLOCK))):
        if array.dtype != np.uint8 or array.shape != shape:
            raise ValueError(f"{name} of {what}: {array.dtype} {array.shape}; expected uint8 {shape}")


def pack_matrix(codes: Bytes, scales: Bytes, out: Bytes | None = None) -> Bytes:
    """Superblocks of a matrix, flat.

    `codes` is uint8 [rows, inputs / 2] with the even input in the low nibble, `scales` uint8 [rows, inputs / 32]
    (UE8M0), as checkpoints have them. `out`, if given, is where they go: uint8, contiguous, `matrix_bytes` long.
    Raises ValueError for other shapes, dtypes or sizes.
    """
    if codes.ndim != 2:
        raise ValueError(f"codes: {codes.shape}; expected two dimensions")
    rows, inputs = codes.shape[0], codes.shape[1] * 2
    size = matrix_bytes(rows, inputs)
    _checked(codes, scales, rows, inputs, "the matrix")
    flat = np.empty(size, np.uint8) if out is None else out
    if flat.dtype != np.uint8 or flat.shape != (size,) or not flat.flags.c_contiguous:
        raise ValueError(f"out: {flat.dtype} {flat.shape}; expected contiguous uint8 ({size},)")
    bands, across = rows // ROWS, -(-inputs // INPUTS)
    missing = -inputs % INPUTS
    if missing:
        codes = np.pad(codes, ((0, 0), (0, missing // 2)))
        scales = np.pad(scales, ((0, 0), (0, missing // BLOCK)))
    blocks = flat.reshape(bands, across, SUPERBLOCK)
    blocks[:, :, :SCALE_BYTES] = (
        scales.reshape(bands, ROWS, across, BLOCKS).transpose(0, 2, 3, 1).reshape(bands, across, SCALE_BYTES)
    )
    words = np.ascontiguousarray(codes).view(np.uint32).reshape(bands, ROWS, across, BLOCKS * 4)
    turned = np.ascontiguousarray(words.transpose(0, 2, 3, 1)).view(np.uint8)
    blocks[:, :, SCALE_BYTES:] = turned.reshape(bands, across, SUPERBLOCK - SCALE_BYTES)
    return flat


def unpack_matrix(flat: Bytes, rows: int, inputs: int) -> tuple[Bytes, Bytes]:
    """Codes [rows, inputs / 2] and scales [rows, inputs / 32] of superblocks: the inverse of `pack_matrix`.

    Raises ValueError when `flat` is not uint8 of the size that such a matrix has.
    """
    size = matrix_bytes(rows, inputs)
    if flat.dtype != np.uint8 or flat.size != size:
        raise ValueError(f"{flat.size} x {flat.dtype}; expected {size} x uint8 for a matrix of {rows} x {inputs}")
    bands, across = rows // ROWS, -(-inputs // INPUTS)
    blocks = flat.reshape(bands, across, SUPERBLOCK)
    scales = blocks[:, :, :SCALE_BYTES].reshape(bands, across, BLOCKS, ROWS).transpose(0, 3, 1, 2)
    words = np.ascontiguousarray(blocks[:, :, SCALE_BYTES:]).view(np.uint32).reshape(bands, across, BLOCKS * 4, ROWS)
    codes = np.ascontiguousarray(words.transpose(0, 3, 1, 2)).view(np.uint8).reshape(rows, -1)[:, : inputs // 2]
    return np.ascontiguousarray(codes), np.ascontiguousarray(scales.reshape(rows, -1)[:, : inputs // BLOCK])


def pack_expert(record: Record, matrices: dict[str, tuple[Bytes, Bytes]], out: Bytes | None = None) -> Bytes:
    """The record of an expert, flat, from (codes, scales) of "w1", "w3" and "w2".

    `out`, if given, is where it goes: uint8, contiguous, `record.size` long. Raises ValueError for a matrix that is
    missing or of another shape than the record's.
    """
    if set(matrices) != set(MATRICES):
        raise ValueError(f"matrices {sorted(matrices)}; expected {sorted(MATRICES)}")
    flat = np.empty(record.size, np.uint8) if out is None else out
    if flat.dtype != np.uint8 or flat.shape != (record.size,) or not flat.flags.c_contiguous:
        raise ValueError(f"out: {flat.dtype} {flat.shape}; expected contiguous uint8 ({record.size},)")
    for name in MATRICES:
        rows, inputs = record.shape(name)
        _checked(*matrices[name], rows, inputs, name)
        begin = record.offset(name)
        pack_matrix(*matrices[name], out=flat[begin : begin + record.matrix_bytes(name)])
    return flat


def unpack_expert(record: Record, flat: Bytes) -> dict[str, tuple[Bytes, Bytes]]:
    """(codes, scales) of each matrix of a record: the inverse of `pack_expert`.

    Raises ValueError when `flat` is not uint8 of the record's size.
    """
    if flat.dtype != np.uint8 or flat.shape != (record.size,):
        raise ValueError(f"record: {flat.dtype} {flat.shape}; expected uint8 ({record.size},)")
    found = {}
    for name in MATRICES:
        begin = record.offset(name)
        found[name] = unpack_matrix(flat[begin : begin + record.matrix_bytes(name)], *record.shape(name))
    return found
