"""Where the scales of a block-scaled matrix lie in memory.

A scale belongs to one row and 32 columns; `scales` has one byte for each, [rows, columns / 32].

Plain: in that order. F8_128x4, as tensor cores of Blackwell's data-centre parts and cuBLASLt have it: tiles of 128 rows
by 4 scales, 512 bytes each, the tiles of a band of rows beside each other. In a tile, scale (r, c) is byte
(r % 32) * 16 + (r / 32) * 4 + c, so that four scales of a row are one aligned 32-bit word.
"""

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 128, 4
TILE = ROWS * COLUMNS

Bytes = NDArray[np.uint8]


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
