"""What the stand-in sees in a picture: the colours of a PNG, and the number that serving/check/png.py drew."""

import base64
import zlib
from collections import Counter

from serving.check import png

# Points from the top of a drawn picture to its bottom, and from one digit to the next.
_HEIGHT, _PITCH = 11, 6
_NAMES = {
    "red": (255, 0, 0),
    "green": (0, 160, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "orange": (255, 140, 0),
    "purple": (128, 0, 128),
    "gray": (128, 128, 128),
}
_Pixels = list[list[tuple[int, ...]]]


def told(url: str) -> str:
    """What a data: URL of a PNG (8 bits a channel, RGB or RGBA, not interlaced) shows, in a sentence.

    Raises ValueError for anything else.
    """
    head, _, text = url.partition(",")
    if not head.startswith("data:image/png"):
        raise ValueError("expected a data: URL of a PNG")
    pixels = _pixels(base64.b64decode(text, validate=True))
    seen = Counter(_nearest(pixel) for row in pixels for pixel in row)
    colours = [name for name, _ in seen.most_common() if name != "white"]
    number = _number(pixels)
    what = f"the number {number}" if number else "shapes"
    return f"The picture shows {what} in {', '.join(colours) or 'white'}."


def _number(pixels: _Pixels) -> str:
    """The digits of a picture of serving/check/png.py; "" for any other."""
    scale = len(pixels) // _HEIGHT
    if not scale:
        return ""
    points = [[_nearest(one) != "white" for one in row[scale // 2 :: scale]] for row in pixels[scale // 2 :: scale]]
    found = ""
    for place in range(2, len(points[0]) - _PITCH, _PITCH):
        found += _TEMPLATES.get(_cell(points, place), "")
    return found


def _cell(points: list[list[bool]], place: int) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(row[place : place + _PITCH - 1]) for row in points)


def _pixels(data: bytes) -> _Pixels:
    width = int.from_bytes(data[16:20])
    depth, kind, interlaced = data[24], data[25], data[28]
    channels = {2: 3, 6: 4}.get(kind)
    if data[:8] != b"\x89PNG\r\n\x1a\n" or depth != 8 or channels is None or interlaced:
        raise ValueError("expected a PNG of 8 bits a channel, RGB or RGBA")
    rows = _rows(zlib.decompress(_chunks(data, b"IDAT")), width * channels, channels)
    return [[tuple(row[place : place + 3]) for place in range(0, len(row), channels)] for row in rows]


def _chunks(data: bytes, kind: bytes) -> bytes:
    found, place = b"", 8
    while place < len(data):
        size = int.from_bytes(data[place : place + 4])
        if data[place + 4 : place + 8] == kind:
            found += data[place + 8 : place + 8 + size]
        place += size + 12
    return found


def _rows(data: bytes, size: int, channels: int) -> list[bytearray]:
    """Undoes the filters of the PNG specification, section 9."""
    rows: list[bytearray] = []
    above = bytearray(size)
    for place in range(0, len(data), size + 1):
        kind, row = data[place], bytearray(data[place + 1 : place + 1 + size])
        for index in range(size):
            left = row[index - channels] if index >= channels else 0
            corner = above[index - channels] if index >= channels else 0
            guess = (0, left, above[index], (left + above[index]) // 2, _paeth(left, above[index], corner))[kind]
            row[index] = (row[index] + guess) & 255
        rows.append(row)
        above = row
    return rows


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))


def _nearest(pixel: tuple[int, ...]) -> str:
    return min(_NAMES, key=lambda name: sum((a - b) ** 2 for a, b in zip(_NAMES[name], pixel, strict=True)))


_TEMPLATES = {
    _cell([[one != (255, 255, 255) for one in row] for row in _pixels(png.digits(digit, (0, 0, 0), 1))], 2): digit
    for digit in "0123456789"
}
