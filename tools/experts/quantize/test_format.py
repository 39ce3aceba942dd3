"""docs/format-2bit.md against the code; the reader here is written from the page alone."""

import re
from pathlib import Path

import numpy as np
import pytest

from kernels.common import planes
from tools.experts.quantize import codebooks, facts
from tools.experts.quantize.run import BASE_KIND, DELTA_KINDS

PAGE = Path("docs/format-2bit.md").read_text()

N, K = np.arange(16)[:, None], np.arange(64)[None, :]
NIBBLES = ((7 * N + 5 * K + K // 8) % 16).astype(np.uint8)
SCALES = (120 + (N + np.arange(2)[None, :]) % 4).astype(np.uint8)


def made() -> dict[str, bytes]:
    codes = planes.to_codes(NIBBLES)
    return {
        "codes": planes.pack_codes(codes).tobytes(),
        "nibbles": planes.pack_nibbles(NIBBLES).tobytes(),
        "scales": planes.pack_scales(SCALES).tobytes(),
        "quintal": planes.pack_quintal(NIBBLES).tobytes(),
    }


def test_bytes_of_the_example() -> None:
    lines = re.findall(r"^(\w+) +(\d+) bytes, from (\d+) +([0-9a-f ]+)$", PAGE, re.M)
    assert {line[0] for line in lines} == set(made()) and len(lines) == 7
    for name, size, at, text in lines:
        expected = bytes.fromhex(text)
        assert len(made()[name]) == int(size)
        assert made()[name][int(at) :][: len(expected)] == expected


def test_table_of_the_example() -> None:
    codes = planes.to_codes(NIBBLES)
    assert NIBBLES[0, [0, 1, 2, 3, 16, 17, 18, 19]].tolist() == [0, 5, 10, 15, 2, 7, 12, 1]
    assert codes[0, [0, 1, 2, 3, 16, 17, 18, 19]].tolist() == [2, 3, 1, 0, 2, 3, 1, 2]
    assert int.from_bytes(made()["quintal"][:3], "little") & 0xFFFFF == 0x3B52C == 300 + 1024 * 237


def test_reader_from_the_page_alone() -> None:
    """One weight after the other, out of bytes, as the page says; for several blocks."""
    rows, columns = 32, 192
    nibbles = np.random.default_rng(0).integers(0, 16, (rows, columns), dtype=np.uint8)
    codes, delta = planes.pack_codes(planes.to_codes(nibbles)).tobytes(), planes.pack_quintal(nibbles).tobytes()
    for n in range(rows):
        for k in range(columns):
            nb, tile, g = n // 16, n // 8 % 2, n % 8
            kb, k32, half, t, k4 = k // 64, k // 32 % 2, k // 16 % 2, k // 4 % 4, k % 4
            block, lane, byte = nb * (columns // 64) + kb, 4 * g + t, 4 * tile + 2 * k32 + half
            code = codes[block * 256 + lane * 8 + byte] >> 2 * k4 & 3
            start = block * 320
            record = delta[start + lane * 8 :][:8] + delta[start + 256 + lane * 2 :][:2]
            word = int.from_bytes(record, "little") >> 10 * byte & 1023
            index = word // 5**k4 % 5 + (5 if code in (0, 3) else 0)
            assert index + (8 if code < 2 else 0) == nibbles[n, k]


def test_tables() -> None:
    assert (
        "2 2 2 2 2 3 3 3 1 1 1 1 1\n0 0 0" in PAGE
        and planes.NIBBLE_TO_CODE.tolist() == [2] * 5 + [3] * 3 + [1] * 5 + [0] * 3
    )
    assert "nibbles 14 10 2 6" in PAGE and planes.CODE_TO_NIBBLE.tolist() == [14, 10, 2, 6]
    for kind in (BASE_KIND, *DELTA_KINDS.values()):
        assert f"`{kind}`" in PAGE
    assert re.search(rf"`quantizer_abi` \| {facts.QUANTIZER_ABI};", PAGE)
    limits = (codebooks.MOST_BIAS, codebooks.MOST_BIAS_SHARE, codebooks.LEAST_CANONICAL, codebooks.MOST_RMS_RATIO)
    assert limits == (0.005, 1 / 5, 0.9, 1.05)


@pytest.mark.parametrize(
    ("size", "formula", "found"),
    [
        ("7,077,888", "27 H I / 32", planes.base_slot(4096, 2048)),
        ("12,582,912", "3 H I / 2", planes.fp4_slot(4096, 2048)),
        ("13,369,344", "51 H I / 32", planes.fp4_slot(4096, 2048, scales=True)),
        ("7,864,320", "15 H I / 16", planes.quintal_slot(4096, 2048)),
    ],
)
def test_sizes(size: str, formula: str, found: int) -> None:
    assert f"| {formula} | {size} |" in PAGE and found == int(size.replace(",", ""))
    over, under = re.findall(r"\d+", formula)
    assert found == int(over) * 4096 * 2048 // int(under)
