from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernels.common import formats
from kernels.kv_record import reference
from kernels.kv_record.reference import FP4, KEY, MXFP8, Record

every_record = pytest.mark.parametrize("record", [MXFP8, FP4, KEY], ids=["mxfp8", "fp4", "key"])
every_page = pytest.mark.parametrize("page", reference.PAGE_SIZES)


def bf16(patterns: np.ndarray) -> np.ndarray:
    """Numbers of bfloat16 by their bits."""
    return np.asarray((patterns.astype(np.uint32) << 16).view(np.float32))


def finite() -> np.ndarray:
    """Every finite bfloat16."""
    every = bf16(np.arange(2**16))
    return np.asarray(every[np.isfinite(every)])


def filled(values: np.ndarray, record: Record) -> np.ndarray:
    """Rows of these values, the last with zeros behind."""
    return np.append(values, np.zeros(-values.size % record.dims, np.float32)).reshape(-1, record.dims)


def mixed(record: Record, seed: int = 1) -> np.ndarray:
    """Every finite bfloat16 among others."""
    return filled(np.random.default_rng(seed).permutation(finite()), record)


def alike(record: Record) -> np.ndarray:
    """Every finite bfloat16 among its neighbours."""
    return filled(finite(), record)


def through(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Codes of another library."""
    return np.asarray(values.astype(dtype).view(np.uint8))


def test_widths() -> None:
    assert sorted(reference.RECORDS) == [68, 288, 528]
    assert all(width == record.width for width, record in reference.RECORDS.items())


@pytest.mark.parametrize("rows", [alike(MXFP8), mixed(MXFP8)], ids=["alike", "mixed"])
def test_mxfp8_by_another_library(rows: np.ndarray) -> None:
    encoded = MXFP8.encode(rows)
    grouped = rows.reshape(-1, 32)
    least = np.float32(1e-4)
    ratio = np.maximum(np.maximum(np.abs(grouped).max(axis=1), least) / np.float32(448), least)
    exponent = np.ceil(np.log2(ratio.astype(np.longdouble))).astype(int)
    assert np.array_equal(encoded.scales.ravel(), exponent + 127)
    assert np.array_equal(
        encoded.data.reshape(-1, 32), through(np.ldexp(grouped, -exponent[:, None]), ml_dtypes.float8_e4m3fn)
    )
    assert encoded.scales.min() == 127 - 13 and (encoded.data & 0x7F).max() == 0x7E


@pytest.mark.parametrize("rows", [alike(FP4), mixed(FP4)], ids=["alike", "mixed"])
def test_fp4_by_another_library(rows: np.ndarray) -> None:
    encoded = FP4.encode(rows)
    grouped = rows.reshape(-1, 16)
    wanted = np.clip(np.abs(grouped).max(axis=1) / np.float32(6), np.float32(2.0**-9), np.float32(448))
    scales = wanted.astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(encoded.scales.ravel(), scales.view(np.uint8))
    quotients = grouped / scales.astype(np.float32)[:, None]
    codes = through(np.clip(quotients, -6, 6), ml_dtypes.float4_e2m1fn)
    assert np.array_equal(encoded.data.reshape(-1, 8), codes[:, 0::2] | codes[:, 1::2] << 4)
    assert encoded.scales.min() == 1 and encoded.scales.max() == 0x7E


@pytest.mark.parametrize("rows", [alike(KEY), mixed(KEY)], ids=["alike", "mixed"])
def test_keys_by_another_library(rows: np.ndarray) -> None:
    encoded = KEY.encode(rows)
    grouped = rows.reshape(-1, 32).astype(np.float64)
    largest = np.maximum(np.abs(grouped).max(axis=1), 6 * 2.0**-126)
    exponent = np.ceil(np.log2(largest.astype(np.longdouble) / 6)).astype(int)
    assert np.array_equal(encoded.scales.ravel(), exponent + 127)
    codes = through(np.ldexp(grouped, -exponent[:, None]).astype(np.float32), ml_dtypes.float4_e2m1fn)
    assert np.array_equal(encoded.data.reshape(-1, 16), codes[:, 0::2] | codes[:, 1::2] << 4)


def one_group(record: Record, *values: float) -> np.ndarray:
    rows = np.zeros((1, record.dims), dtype=np.float32)
    rows[0, : len(values)] = values
    assert np.array_equal(formats.round_bf16(rows), rows, equal_nan=True)
    return rows


def test_where_scales_step() -> None:
    for largest, scale in ((448, 127), (450, 128), (-1.75, 119), (0.0547, 114), (2.0**-133, 114), (3.3895314e38, 247)):
        rows = formats.round_bf16(one_group(MXFP8) + np.float32(largest) * (np.arange(512) == 0))
        assert MXFP8.encode(rows).scales[0, 0] == scale
    for largest, scale in ((6, 56), (-6.1875, 56), (6.375, 56), (6.40625, 57), (2688, 126), (1e30, 126), (0, 1)):
        rows = formats.round_bf16(one_group(FP4) + np.float32(largest) * (np.arange(512) == 0))
        assert FP4.encode(rows).scales[0, 0] == scale, largest
    for largest, scale in ((6, 127), (-6.03125, 128), (3, 126), (4, 127), (0, 1), (3.3895314e38, 253)):
        rows = formats.round_bf16(one_group(KEY) + np.float32(largest) * (np.arange(128) == 0))
        assert KEY.encode(rows).scales[0, 0] == scale


def test_ties_go_to_even_and_more_is_the_largest() -> None:
    values = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0)
    codes = [0, 2, 2, 4, 4, 6, 6, 7]
    packed = [low | high << 4 for low, high in zip(codes[0::2], codes[1::2], strict=True)]
    assert FP4.encode(one_group(FP4, *values)).data[0, :4].tolist() == packed
    assert KEY.encode(one_group(KEY, *values)).data[0, :4].tolist() == packed
    negative = FP4.encode(one_group(FP4, *[-v for v in values])).data[0, :4]
    assert negative.tolist() == [byte | 0x88 for byte in packed]
    # The largest scale, 448, does for 2688 and no more.
    assert FP4.encode(one_group(FP4, 1e4 // 64 * 64, -(2.0**100))).data[0, 0] == 0xF7


def test_zeros_have_the_least_scale_and_their_sign() -> None:
    for record, scale in ((MXFP8, 114), (FP4, 1), (KEY, 1)):
        rows = np.zeros((1, record.dims), np.float32)
        assert set(record.encode(rows).scales.ravel()) == {scale} and not record.encode(rows).data.any()
        assert set(record.encode(-rows).data.ravel()) == {0x80 if record is MXFP8 else 0x88}


def test_what_is_not_finite() -> None:
    inf, nan = np.inf, np.nan
    codes, scales = MXFP8.encode(one_group(MXFP8, 1, -inf, -2, inf))
    assert scales[0, :2].tolist() == [255, 114] and codes[0, :5].tolist() == [0, 0x7F, 0x80, 0x7F, 0]
    codes, scales = MXFP8.encode(one_group(MXFP8, 1, -inf, -2, nan))
    assert scales[0, :2].tolist() == [255, 114] and set(codes[0, :32]) == {0x7F} and not codes[0, 32:].any()
    for value in (inf, -inf, nan):
        codes, scales = FP4.encode(one_group(FP4, -1, value, 3))
        assert scales[0, :2].tolist() == [0x7F, 1] and not codes.any()
        codes, scales = KEY.encode(one_group(KEY, -1, value, 3))
        assert scales[0, :2].tolist() == [255, 1] and not codes.any()


@every_record
def test_decoded_is_near(record: Record) -> None:
    rows = formats.round_bf16(np.random.default_rng(2).standard_normal((64, record.dims)).astype(np.float32))
    group = record.dims // record.scales
    largest = np.abs(rows).reshape(64, -1, group).max(axis=-1).repeat(group, axis=-1)
    error = np.abs(record.decode(record.encode(rows)) - rows)
    share = {528: 1 / 16, 288: 1 / 6 + 1 / 16, 68: 1 / 3}[record.width]
    assert (error <= share * largest).all() and (error > share / 3 * largest).any()


def test_rotation_of_pairs() -> None:
    generator = np.random.default_rng(3)
    rows = formats.round_bf16(generator.standard_normal((50, 512)).astype(np.float32))
    angles = generator.uniform(0, 6.3, (50, 32))
    rotated = reference.rotate(rows, np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    assert np.array_equal(rotated[:, :448], rows[:, :448])
    turned = (rows[:, 448::2] + 1j * rows[:, 449::2]) * np.exp(1j * angles)
    for ours, exact in ((rotated[:, 448::2], turned.real), (rotated[:, 449::2], turned.imag)):
        assert (np.abs(ours - exact) <= formats.bf16_spacing(exact) * 0.51 + 1e-6).all()
        assert np.array_equal(formats.round_bf16(ours), ours)
    nothing = np.concatenate([np.ones((50, 32)), np.zeros((50, 32))], axis=1).astype(np.float32)
    assert np.array_equal(reference.rotate(rows, nothing), rows)


def test_norm() -> None:
    generator = np.random.default_rng(4)
    rows = formats.round_bf16(generator.standard_normal((200, 128)).astype(np.float32))
    weight = formats.round_bf16(generator.uniform(0.5, 2, 128).astype(np.float32))
    exact = rows / np.sqrt((rows.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6) * weight
    normal = reference.normalize(rows, weight, 1e-6)
    assert (np.abs(normal - exact) <= formats.bf16_spacing(exact) * 0.501).all()
    assert not reference.normalize(np.zeros((1, 128), np.float32), weight, 1e-6).any()
    assert np.isnan(reference.normalize(np.zeros((1, 128), np.float32), weight, 0.0)).all()


@every_record
@every_page
def test_footers(record: Record, page: int) -> None:
    """flashinfer's FooterScaleLayout, row by row: row * data, and page * data + row * scales."""
    generator = np.random.default_rng(5)
    slots = generator.permutation(3 * page)[: page + 3]
    encoded = record.encode(formats.round_bf16(generator.standard_normal((len(slots), record.dims)).astype(np.float32)))
    stride = page * record.width + 64
    memory = np.full((3, stride), 0xA5, dtype=np.uint8)
    reference.store(memory, page, slots, encoded)
    flat = np.full(3 * stride, 0xA5, dtype=np.uint8)
    for slot, data, scales in zip(slots.tolist(), *encoded, strict=True):
        first, row = slot // page * stride, slot % page
        flat[first + row * record.data :][: record.data] = data
        flat[first + page * record.data + row * record.scales :][: record.scales] = scales
    assert np.array_equal(memory.ravel(), flat)
    fetched = reference.fetch(memory, page, slots, record)
    assert np.array_equal(fetched.data, encoded.data) and np.array_equal(fetched.scales, encoded.scales)
    rows = reference.gather(memory, page, np.append(slots, [-1, 3 * page, 2**40]), record)
    assert np.array_equal(rows[:-3], record.decode(encoded)) and not rows[-3:].any()


def test_which_rows_are_written() -> None:
    positions = np.array([0, 1, 2, 3, 4, 5, 3, 3, 9, 10, -1])
    slots = np.array([5, 5, -1, 63, 64, 0, -(2**63), 2**62, 1, 2, 3])
    assert reference.written(positions, slots, 64, 10).tolist() == [
        True, True, False, True, False, True, False, False, True, False, False,
    ]  # fmt: skip
    assert np.flatnonzero(reference.written(positions, slots, 64, 10, 2)).tolist() == [1, 3, 5, 8]
    assert reference.first_of_group(np.arange(6), 2).tolist() == [0, 0, 2, 2, 4, 4]
    assert reference.first_of_group(np.arange(6), 1).tolist() == [0, 1, 2, 3, 4, 5]


@every_record
def test_no_rows(record: Record) -> None:
    nothing = np.zeros((0, record.dims), np.float32)
    encoded = record.encode(reference.rotate(nothing, np.zeros((0, 64), np.float32)))
    assert encoded.data.shape == (0, record.data) and encoded.scales.shape == (0, record.scales)
    assert reference.normalize(nothing, np.ones(record.dims, np.float32), 0.0).shape == nothing.shape
