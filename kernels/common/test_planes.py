import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.common import formats, planes

SHAPES = [(16, 64), (32, 128), (48, 192), (16, 5120)]


def nibbles(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 16, shape, dtype=np.uint8)


def places(rows: int, columns: int) -> dict[tuple[int, int], int]:
    """(row, column) to the place in a plane, as the format is written down."""
    found = {}
    order = itertools.product(range(rows // 16), range(columns // 64), range(8), range(4), *[range(2)] * 3, range(4))
    for at, (nb, kb, g, t, tile, k32, half, k4) in enumerate(order):
        found[nb * 16 + tile * 8 + g, kb * 64 + k32 * 32 + half * 16 + t * 4 + k4] = at
    return found


def test_code_of_every_nibble() -> None:
    levels = planes.CODE_LEVELS[planes.NIBBLE_TO_CODE]
    for value, level in zip(formats.E2M1_VALUES, levels, strict=True):
        assert abs(level) == (1 if abs(value) <= 2 else 4)
        assert np.signbit(level) == np.signbit(value)
    assert np.array_equal(formats.E2M1_VALUES[planes.CODE_TO_NIBBLE], planes.CODE_LEVELS)
    assert np.array_equal(planes.to_codes(planes.CODE_TO_NIBBLE), np.arange(4))


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_every_weight_is_where_the_format_says(rows: int, columns: int) -> None:
    values = nibbles(rows, rows, columns)
    codes = planes.to_codes(values)
    of_codes, of_nibbles = planes.pack_codes(codes), planes.pack_nibbles(values)
    assert (of_codes.size, of_nibbles.size) == (rows * columns // 4, rows * columns // 2)
    for place, at in places(rows, columns).items():
        assert of_codes[at // 4] >> (at % 4 * 2) & 3 == codes[place]
        assert of_nibbles[at // 2] >> (at % 2 * 4) & 15 == values[place]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_every_scale_is_where_the_format_says(rows: int, columns: int) -> None:
    scales = np.random.default_rng(rows).integers(0, 256, (rows, columns // 32), dtype=np.uint8)
    plane = planes.pack_scales(scales)
    for (n, ks), scale in np.ndenumerate(scales):
        assert plane[(n // 16 * (columns // 32) + ks) * 16 + n % 16] == scale
    assert np.array_equal(planes.unpack_scales(plane, rows, columns), scales)


def test_every_digit_is_where_the_format_says() -> None:
    rows, columns = 32, 192
    values = nibbles(3, rows, columns)
    delta = planes.pack_quintal(values)
    assert delta.size == rows * columns * 5 // 16
    for (row, column), at in places(rows, columns).items():
        block, lane, word, digit = at // 1024, at // 32 % 32, at // 4 % 8, at % 4
        record = bytes(delta[block * 320 + lane * 8 :][:8]) + bytes(delta[block * 320 + 256 + lane * 2 :][:2])
        number = int.from_bytes(record, "little") >> (10 * word) & 1023
        magnitude = int(values[row, column]) & 7
        assert number // 5**digit % 5 == (magnitude if magnitude < 5 else magnitude - 5)


def test_multiplication_takes_the_place_of_division_by_five() -> None:
    x = np.arange(1024)
    assert np.array_equal(x * planes.FIFTH >> planes.FIFTH_SHIFT, x // 5)
    assert 1024 * planes.FIFTH < 2**32


def test_quintal_delta_gives_back_every_four_nibbles() -> None:
    """All 65536 quadruples, in every one of the eight words of a lane."""
    quads = np.indices((16,) * 4, dtype=np.uint8).reshape(4, -1).T
    for word in range(8):
        shifted = np.roll(quads.reshape(-1, 8, 4), word, axis=1)
        values = planes.unpack_nibbles(planes.join_nibbles(shifted).reshape(-1), 1024, 256)
        assert np.array_equal(planes.unpack_quintal(planes.pack_quintal(values), planes.to_codes(values)), values)


@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1), st.lists(st.integers(1, 3), max_size=2))
def test_round_trips(nb: int, kb: int, seed: int, leading: list[int]) -> None:
    rows, columns = 16 * nb, 64 * kb
    values = nibbles(seed, *leading, rows, columns)
    codes = planes.to_codes(values)
    scales = np.random.default_rng(seed).integers(0, 256, (*leading, rows, columns // 32), dtype=np.uint8)
    assert np.array_equal(planes.split_nibbles(planes.join_nibbles(values)), values)
    assert np.array_equal(planes.unpack_codes(planes.pack_codes(codes), rows, columns), codes)
    assert np.array_equal(planes.unpack_nibbles(planes.pack_nibbles(values), rows, columns), values)
    assert np.array_equal(planes.unpack_scales(planes.pack_scales(scales), rows, columns), scales)
    assert np.array_equal(planes.unpack_quintal(planes.pack_quintal(values), codes), values)


def test_leading_dimensions_are_matrices_one_after_the_other() -> None:
    values = nibbles(5, 3, 32, 64)
    for pack in (planes.pack_nibbles, planes.pack_quintal):
        assert np.array_equal(pack(values), np.stack([pack(one) for one in values]))
    codes = planes.to_codes(values)
    assert np.array_equal(planes.pack_codes(codes), np.stack([planes.pack_codes(one) for one in codes]))


def test_values() -> None:
    codes = np.tile(np.arange(4, dtype=np.uint8), (16, 16))
    scales = np.full((16, 2), 127, dtype=np.uint8)
    scales[0], scales[1] = [0, 128], [254, 255]
    values = planes.decode(codes, scales)
    assert values[2, :4].tolist() == [-4, -1, 1, 4]
    assert values[0, 0] == -4 * 2.0**-127 and values[0, 32] == -8
    assert values[1, 3] == 2.0**129 and np.isnan(values[1, 32:]).all() and not np.isnan(values[1, :32]).any()
    assert planes.decode_nibbles(np.full((1, 32), 15, dtype=np.uint8), scales[:1, 1:]).tolist() == [[-12.0] * 32]


def test_slots() -> None:
    assert planes.base_slot(4096, 2048) == 7_077_888
    assert planes.fp4_slot(4096, 2048) == 12_582_912
    assert planes.fp4_slot(4096, 2048, scales=True) == 13_369_344
    assert planes.quintal_slot(4096, 2048) == 7_864_320
    assert planes.shapes(5120, 2304) == {"w1": (2304, 5120), "w3": (2304, 5120), "w2": (5120, 2304)}


@pytest.mark.parametrize("shape", [(15, 64), (16, 32), (0, 64), (16, 0)])
def test_shape_that_has_no_plane(shape: tuple[int, int]) -> None:
    empty = np.zeros(shape, dtype=np.uint8)
    for pack in (planes.pack_codes, planes.pack_nibbles, planes.pack_quintal):
        with pytest.raises(ValueError, match=f"a matrix of {shape[0]} x {shape[1]}: planes take"):
            pack(empty)
    with pytest.raises(ValueError, match="planes take"):
        planes.unpack_codes(np.zeros(256, dtype=np.uint8), *shape)


def test_plane_of_another_size() -> None:
    plane = np.zeros(255, dtype=np.uint8)
    for unpack in (planes.unpack_codes, planes.unpack_nibbles, planes.unpack_scales):
        with pytest.raises(ValueError, match=r"expected \d+ bytes"):
            unpack(plane, 16, 64)
    with pytest.raises(ValueError, match="expected 320 bytes"):
        planes.unpack_quintal(plane, np.zeros((16, 64), dtype=np.uint8))


def test_values_that_are_none() -> None:
    bad = np.full((16, 64), 4, dtype=np.uint8)
    with pytest.raises(ValueError, match="expected bytes of 0 to 3"):
        planes.pack_codes(bad)
    with pytest.raises(ValueError, match="expected bytes of 0 to 15"):
        planes.pack_nibbles(bad * 4)
    with pytest.raises(ValueError, match="expected bytes of 0 to 3"):
        planes.pack_codes(np.zeros((16, 64), dtype=np.int64))


def test_delta_that_is_none() -> None:
    values = np.full((16, 64), 4, dtype=np.uint8)
    delta = planes.pack_quintal(values)
    with pytest.raises(ValueError, match="belongs to other codes"):
        planes.unpack_quintal(delta, planes.to_codes(values + 1))
    with pytest.raises(ValueError, match="a word is 625 or more"):
        planes.unpack_quintal(np.full(320, 255, dtype=np.uint8), planes.to_codes(values))
    zeros = np.zeros((16, 64), dtype=np.uint8)
    delta = planes.pack_quintal(zeros)
    delta[:2] = 625 & 255, 625 >> 8
    with pytest.raises(ValueError, match="a word is 625 or more"):
        planes.unpack_quintal(delta, planes.to_codes(zeros))
