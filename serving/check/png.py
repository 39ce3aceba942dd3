"""A picture whose content is known: digits, drawn in one colour on white, as PNG."""

import struct
import zlib

# Digits 0 to 9, five columns by seven rows, a row a number of five bits.
_DIGITS = (
    (14, 17, 19, 21, 25, 17, 14),
    (4, 12, 4, 4, 4, 4, 14),
    (14, 17, 1, 2, 4, 8, 31),
    (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2),
    (31, 16, 30, 1, 1, 17, 14),
    (6, 8, 16, 30, 17, 17, 14),
    (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14),
    (14, 17, 17, 15, 1, 2, 12),
)
_COLUMNS, _ROWS = 5, 7
_WHITE = (255, 255, 255)


def digits(number: str, colour: tuple[int, int, int], scale: int = 16) -> bytes:
    """A PNG of the digits of `number`, each point of them `scale` pixels wide, with a margin."""
    width = len(number) * (_COLUMNS + 1) + 3
    dark = [[False] * width for _ in range(_ROWS + 4)]
    for place, digit in enumerate(number):
        for row, bits in enumerate(_DIGITS[int(digit)]):
            for column in range(_COLUMNS):
                dark[row + 2][place * (_COLUMNS + 1) + 2 + column] = bool(bits >> (_COLUMNS - 1 - column) & 1)
    rows = []
    for line in dark:
        pixels = b"".join(bytes(colour if point else _WHITE) * scale for point in line)
        # A filter byte of 0 before each row: its bytes are as they are.
        rows += [b"\x00" + pixels] * scale
    header = struct.pack(">IIBBBBB", width * scale, len(dark) * scale, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(rows))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
