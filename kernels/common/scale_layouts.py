"""Where the scales of a block-scaled matrix lie in memory.

A scale belongs to one row and 32 columns; `scales` has one byte for each, [rows, columns / 32].

Plain: in that order. F8_128x4, as tensor cores of Blackwell's data-centre parts and cuBLASLt have it: tiles of 128 rows
by 4 scales, 512 bytes each, the tiles of a band of rows beside each other. In a tile, scale (r, c) is byte
(r % 32) * 16 + (r / 32) * 4 + c, so that four scales of a row are one aligned 32-bit word.

Packed, as DeepGEMM's activations have it: 32-bit words of four scales of a row, the first in the lowest byte; the words
of all rows for one k beside each other (MN-major), and as many rows as make a multiple of 16 bytes.
"""

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 128, 4
TILE = ROWS * COLUMNS

PACKED_ROWS = 4

Bytes = NDArray[np.uint8]
Words = NDArray[np.int32]


def padded(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of scales with what fills up the last tiles.

    >>> padded(200, 18)
    (256, 20)
    """
    return -(-rows // ROWS) * ROWS, -(-columns // COLUMNS) * COLUMNS


def swizzle(scales: Bytes, filler: int = 0) -> Bytes:
    """From plain to F8_128x4, flat; `filler` is what the places without a scale get."""
    rows, columns = padded(*scales.shape)
    full = np.full((rows, columns), filler, dtype=np.uint8)
    full[: scales.shape[0], : scales.shape[1]] = scales
    tiles = full.reshape(rows // ROWS, 4, 32, columns // COLUMNS, COLUMNS)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(-1)


def unswizzle(flat: Bytes, rows: int, columns: int) -> Bytes:
    """From F8_128x4 back to plain.

    Raises ValueError when `flat` has not the size of that many rows and columns.
    """
    padded_rows, padded_columns = padded(rows, columns)
    if flat.size != padded_rows * padded_columns:
        raise ValueError(f"{flat.size} scales; expected {padded_rows * padded_columns} for {rows} rows of {columns}")
    tiles = flat.reshape(padded_rows // ROWS, padded_columns // COLUMNS, 32, 4, COLUMNS)
    full = tiles.transpose(0, 3, 2, 1, 4).reshape(padded_rows, padded_columns)
    return np.ascontiguousarray(full[:rows, :columns])


def packed_rows(rows: int) -> int:
    """How many rows packed scales have room for.

    >>> packed_rows(6)
    8
    """
    return -(-rows // PACKED_ROWS) * PACKED_ROWS


def pack(scales: Bytes, filler: int = 0) -> Words:
    """From plain [groups, rows, columns], columns a multiple of 4, to packed: [groups, columns / 4, packed_rows(rows)].

    `filler` is what the bytes of the rows without a scale get.

    >>> [hex(word) for word in pack(np.array([[[1, 2, 3, 4]], [[5, 6, 7, 8]]], dtype=np.uint8))[:, 0, 0]]
    ['0x4030201', '0x8070605']
    """
    groups, rows, columns = scales.shape
    full = np.full((groups, packed_rows(rows), columns), filler, dtype=np.uint8)
    full[:, :rows] = scales
    words = full.view("<i4")
    return np.ascontiguousarray(words.transpose(0, 2, 1))
