import random
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.experts.storage import checksum, native

CODE = native.MODULE


def by_definition(data: bytes) -> int:
    """Bit by bit, from the polynomial as it is written in the catalogues."""
    register = (1 << 64) - 1
    for byte in data:
        register ^= int(f"{byte:08b}"[::-1], 2) << 56
        for _ in range(8):
            register = (register << 1) ^ (0x1_AD93D23594C93659 if register >> 63 else 0)
    return int(f"{register ^ ((1 << 64) - 1):064b}"[::-1], 2)


def test_machine_code_is_there() -> None:
    assert native.WHY == "" and CODE.crc64_path() in ("pclmulqdq", "tables")


def test_check_value() -> None:
    # The check value that catalogues of CRCs have for CRC-64/NVME.
    assert checksum.crc64(b"123456789") == 0xAE8B14860A799888
    assert CODE.crc64_by_tables(b"123456789") == 0xAE8B14860A799888
    assert checksum.by_numpy(b"123456789") == 0xAE8B14860A799888


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=700))
def test_every_way_gives_what_the_definition_gives(data: bytes) -> None:
    expected = by_definition(data)
    assert CODE.crc64(data) == expected
    assert CODE.crc64_by_tables(data) == expected
    assert checksum.by_numpy(data) == expected


@pytest.mark.parametrize("size", [4095, 65_535, 65_536, 65_537, 1_000_003])
def test_long_data(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert CODE.crc64(data) == CODE.crc64_by_tables(data) == checksum.by_numpy(data)


def test_any_alignment_and_contiguous_buffer() -> None:
    data = np.frombuffer(random.Random(0).randbytes(5000), np.uint8)
    for skip in range(20):
        assert checksum.crc64(data[skip:]) == CODE.crc64_by_tables(data[skip:].tobytes())
    assert checksum.crc64(data[:4096].view(np.uint32).reshape(32, 32)) == checksum.crc64(data[:4096].tobytes())


def test_every_flipped_bit_is_seen() -> None:
    data = bytearray(random.Random(1).randbytes(300))
    sums = {checksum.crc64(data)}
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        sums.add(checksum.crc64(data))
        data[bit // 8] ^= 1 << bit % 8
    assert len(sums) == 1 + 8 * len(data)


def test_zeros_of_different_lengths_differ() -> None:
    assert len({checksum.crc64(bytes(size)) for size in range(500)}) == 500
    assert checksum.crc64(bytes(64)) != zlib.crc32(bytes(64))


def test_bytes_that_are_not_contiguous() -> None:
    data = np.zeros((64, 64), np.uint8)
    for part in (data[:, :8], data[::-1], data.T[::2]):
        for way in (CODE.crc64, CODE.crc64_by_tables, checksum.by_numpy):
            with pytest.raises(ValueError, match="contiguous"):
                way(part)
