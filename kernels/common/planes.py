"""The 2-bit form of an expert's matrices, and the deltas that give its 4-bit form back, in plain numpy.

A weight is an E2M1 nibble (sign, magnitude index 0 to 7 of 0, .5, 1, 1.5, 2, 3, 4, 6) times the UE8M0 scale of its 32
columns. Its 2-bit code keeps the sign and one bit of the magnitude: codes 0 to 3 are -4, -1, 1, 4, times the same
scale. Magnitudes to 2 become 1, from 3 on 4; a zero becomes 1 or -1, as its sign bit says.

Planes are in the order in which the lanes of mma m16n8k32 hold a fragment. Row n and column k of [N, K], N a multiple
of 16 and K of 64:

    n = 16 nb + 8 tile + g,  k = 64 kb + 32 k32 + 16 half + 4 t + k4;  order [nb, kb, g, t, tile, k32, half, k4]

so that lane 4 g + t has 32 weights of (nb, kb) beside each other: 8 bytes of codes, four a byte, the first in the
lowest bits; or 16 bytes of nibbles, two a byte, the low one first. The scale plane has byte (nb K/32 + ks) 16 + n % 16.

The quintal delta has for each weight a digit 0 to 4: its magnitude's index within the class that the code states (0
to 4 of the lower, 0 to 2 of the upper). The four of a byte of codes are the 10-bit word d0 + 5 d1 + 25 d2 + 125 d3; the
eight words of a lane are 80 bits, the first in the lowest. (nb, kb) takes 320 bytes: the first eight bytes of each
of 32 lanes, then the last two of each.

All functions take leading dimensions; they raise ValueError for what cannot be packed or is no plane.
"""

import numpy as np
from numpy.typing import NDArray

from . import formats

Bytes = NDArray[np.uint8]
Doubles = NDArray[np.float64]

ROWS, COLUMNS = 16, 64

CODE_LEVELS: Doubles = np.array([-4.0, -1.0, 1.0, 4.0])

# Indexed by nibble and by code; a code's nibble has the code's level.
NIBBLE_TO_CODE: Bytes = np.array([2] * 5 + [3] * 3 + [1] * 5 + [0] * 3, dtype=np.uint8)
CODE_TO_NIBBLE: Bytes = np.array([0xE, 0xA, 0x2, 0x6], dtype=np.uint8)

# The class above 2 begins at this magnitude index.
UPPER_CLASS = 5

# x * FIFTH >> FIFTH_SHIFT is x // 5 for x below 1024.
FIFTH, FIFTH_SHIFT = 0x334, 12

_AXES = (0, 1, 4, 3, 7, 2, 5, 6, 8)
_INVERSE = tuple(int(axis) for axis in np.argsort(_AXES))
_POWERS = np.array([1, 5, 25, 125], dtype=np.uint16)


def codes_bytes(rows: int, columns: int) -> int:
    """Bytes of a plane of codes."""
    return rows * columns // 4


def nibbles_bytes(rows: int, columns: int) -> int:
    """Bytes of a plane of nibbles."""
    return rows * columns // 2


def scales_bytes(rows: int, columns: int) -> int:
    """Bytes of a plane of scales."""
    return rows * columns // formats.BLOCK


def quintal_bytes(rows: int, columns: int) -> int:
    """Bytes of a quintal delta."""
    return rows * columns * 5 // 16


def shapes(hidden: int, intermediate: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of an expert's matrices, in the order of every slot: w1 (gate), w3 (up), w2 (down)."""
    return {"w1": (intermediate, hidden), "w3": (intermediate, hidden), "w2": (hidden, intermediate)}


def base_slot(hidden: int, intermediate: int) -> int:
    """Bytes of an expert's base slot: for each matrix its plane of codes, then its plane of scales.

    >>> base_slot(4096, 2048)
    7077888
    """
    of = shapes(hidden, intermediate).values()
    return sum(codes_bytes(*shape) + scales_bytes(*shape) for shape in of)


def fp4_slot(hidden: int, intermediate: int, scales: bool = False) -> int:
    """Bytes of an expert's FP4 delta slot: for each matrix its plane of nibbles, then, if asked, its own scales.

    >>> fp4_slot(4096, 2048), fp4_slot(4096, 2048, scales=True)
    (12582912, 13369344)
    """
    of = shapes(hidden, intermediate).values()
    return sum(nibbles_bytes(*shape) + scales * scales_bytes(*shape) for shape in of)


def quintal_slot(hidden: int, intermediate: int) -> int:
    """Bytes of an expert's quintal delta slot.

    >>> quintal_slot(4096, 2048)
    7864320
    """
    return sum(quintal_bytes(*shape) for shape in shapes(hidden, intermediate).values())


def split_nibbles(packed: Bytes) -> Bytes:
    """Nibbles [..., K] of a checkpoint's bytes [..., K / 2], the low nibble first."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def join_nibbles(nibbles: Bytes) -> Bytes:
    """A checkpoint's bytes [..., K / 2] of nibbles [..., K]."""
    return (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(np.uint8)


def to_codes(nibbles: Bytes) -> Bytes:
    """The 2-bit codes of nibbles, of the same shape."""
    return NIBBLE_TO_CODE[nibbles]


def decode(codes: Bytes, scales: Bytes) -> Doubles:
    """Values [..., K] of codes [..., K] and UE8M0 scales [..., K / 32]; 255 is NaN."""
    return CODE_LEVELS[codes] * np.repeat(formats.decode_ue8m0(scales), formats.BLOCK, axis=-1)


def decode_nibbles(nibbles: Bytes, scales: Bytes) -> Doubles:
    """Values [..., K] of nibbles [..., K] and UE8M0 scales [..., K / 32]; 255 is NaN."""
    return formats.E2M1_VALUES[nibbles] * np.repeat(formats.decode_ue8m0(scales), formats.BLOCK, axis=-1)


def pack_codes(codes: Bytes) -> Bytes:
    """The plane [..., N K / 4] of codes [..., N, K]."""
    quads = _fragments(codes, most=3)
    shifted = quads << np.array([0, 2, 4, 6], dtype=np.uint8)
    joined: Bytes = np.bitwise_or.reduce(shifted, axis=-1)
    return joined.reshape(*codes.shape[:-2], -1)


def unpack_codes(plane: Bytes, rows: int, columns: int) -> Bytes:
    """The codes [..., rows, columns] of a plane."""
    _check_plane(plane, rows, columns, codes_bytes(rows, columns))
    quads: Bytes = plane[..., None] >> np.array([0, 2, 4, 6], dtype=np.uint8) & np.uint8(3)
    return _matrix(quads, plane.shape[:-1], rows, columns)


def pack_nibbles(nibbles: Bytes) -> Bytes:
    """The FP4 plane [..., N K / 2] of nibbles [..., N, K]."""
    quads = _fragments(nibbles, most=15)
    return join_nibbles(quads).reshape(*nibbles.shape[:-2], -1)


def unpack_nibbles(plane: Bytes, rows: int, columns: int) -> Bytes:
    """The nibbles [..., rows, columns] of an FP4 plane."""
    _check_plane(plane, rows, columns, nibbles_bytes(rows, columns))
    return _matrix(split_nibbles(plane), plane.shape[:-1], rows, columns)


def pack_scales(scales: Bytes) -> Bytes:
    """The plane [..., N K / 32] of scales [..., N, K / 32]."""
    *leading, rows, groups = scales.shape
    _check_shape(rows, groups * formats.BLOCK)
    blocks = scales.reshape(*leading, rows // ROWS, ROWS, groups)
    return np.ascontiguousarray(np.swapaxes(blocks, -1, -2)).reshape(*leading, -1)


def unpack_scales(plane: Bytes, rows: int, columns: int) -> Bytes:
    """The scales [..., rows, columns / 32] of a plane."""
    _check_plane(plane, rows, columns, scales_bytes(rows, columns))
    leading, groups = plane.shape[:-1], columns // formats.BLOCK
    blocks = plane.reshape(*leading, rows // ROWS, groups, ROWS)
    return np.ascontiguousarray(np.swapaxes(blocks, -1, -2)).reshape(*leading, rows, groups)


def pack_quintal(nibbles: Bytes) -> Bytes:
    """The quintal delta [..., N K 5 / 16] that makes nibbles [..., N, K] of their codes."""
    magnitudes = _fragments(nibbles, most=15) & 7
    digits = magnitudes - UPPER_CLASS * (magnitudes >= UPPER_CLASS).astype(np.uint8)
    words = (digits * _POWERS).sum(axis=-1, dtype=np.uint16)
    bits = words[..., None] >> np.arange(10, dtype=np.uint16) & 1
    lanes = np.packbits(bits.astype(np.uint8).reshape(-1, 80), axis=-1, bitorder="little").reshape(-1, 32, 10)
    parts = [lanes[:, :, :8].reshape(-1, 256), lanes[:, :, 8:].reshape(-1, 64)]
    return np.concatenate(parts, axis=1).reshape(*nibbles.shape[:-2], -1)


def unpack_quintal(delta: Bytes, codes: Bytes) -> Bytes:
    """The nibbles [..., N, K] of a quintal delta and the codes [..., N, K] that it belongs to."""
    rows, columns = codes.shape[-2:]
    _check_plane(delta, rows, columns, quintal_bytes(rows, columns))
    blocks = delta.reshape(-1, 320)
    lanes = np.concatenate([blocks[:, :256].reshape(-1, 32, 8), blocks[:, 256:].reshape(-1, 32, 2)], axis=-1)
    bits = np.unpackbits(lanes.reshape(-1, 10), axis=-1, bitorder="little").reshape(-1, 10)
    words = (bits.astype(np.uint16) << np.arange(10, dtype=np.uint16)).sum(axis=-1, dtype=np.uint16)
    if (words >= 625).any():
        raise ValueError("not a quintal delta: a word is 625 or more")
    digits = (words[..., None] // _POWERS % 5).astype(np.uint8)
    upper = (codes == 0) | (codes == 3)
    magnitudes = _matrix(digits, codes.shape[:-2], rows, columns) + UPPER_CLASS * upper.astype(np.uint8)
    if (magnitudes > 7).any():
        raise ValueError("this quintal delta belongs to other codes: a digit is larger than its class")
    nibbles: Bytes = (magnitudes | (codes < 2).astype(np.uint8) << 3).astype(np.uint8)
    return nibbles


def _fragments(values: Bytes, most: int) -> Bytes:
    """Values [..., N, K] in the order of a plane: [..., N K / 4, k4]."""
    *leading, rows, columns = values.shape
    _check_shape(rows, columns)
    if values.dtype != np.uint8 or (values > most).any():
        raise ValueError(f"expected bytes of 0 to {most}")
    view: Bytes = values.reshape(-1, rows // ROWS, 2, 8, columns // COLUMNS, 2, 2, 4, 4)
    quads: Bytes = np.ascontiguousarray(view.transpose(_AXES))
    return quads.reshape(*leading, -1, 4)


def _matrix(quads: Bytes, leading: tuple[int, ...], rows: int, columns: int) -> Bytes:
    """The inverse of _fragments."""
    lanes: Bytes = quads.reshape(-1, rows // ROWS, columns // COLUMNS, 8, 4, 2, 2, 2, 4)
    return np.ascontiguousarray(lanes.transpose(_INVERSE)).reshape(*leading, rows, columns)


def _check_shape(rows: int, columns: int) -> None:
    if rows <= 0 or columns <= 0 or rows % ROWS or columns % COLUMNS:
        raise ValueError(f"a matrix of {rows} x {columns}: planes take rows by {ROWS} and columns by {COLUMNS}")


def _check_plane(plane: Bytes, rows: int, columns: int, expected: int) -> None:
    _check_shape(rows, columns)
    if plane.dtype != np.uint8 or plane.shape[-1] != expected:
        raise ValueError(f"{plane.shape[-1]} {plane.dtype} a plane of {rows} x {columns}; expected {expected} bytes")
