"""What kv_record, kv_record_key and kv_record_gather compute, in plain numpy. Every byte is exact: the kernels have it.

The two records follow flashinfer 0.7.2.post1's writers (csrc/sparse_mla_sm120/cake_dsv41_fp8_cache_ops.cu and
dsv41_fp4_cache_ops.cu), whose input is bfloat16; the key follows vLLM 0.33.0's
(vllm/models/deepseek_v41/common/ops/indexer_k_store.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import formats

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

PAGE_SIZES = (32, 64, 128)
ROPE_DIMS = 64
# Neighbouring values that a thread of the kernel adds up by itself.
_THREAD = 8
_E4M3_NAN, _UE8M0_NAN = 0x7F, 0xFF


class Encoded(NamedTuple):
    """Rows as bytes: `data` [rows, data bytes], and `scales` [rows, scale bytes]."""

    data: Bytes
    scales: Bytes


@dataclass(frozen=True)
class Record:
    """What is stored of one row of `dims` values: `data` bytes of codes, and `scales` bytes, one a group."""

    dims: int
    data: int
    scales: int
    encode: Callable[[Floats], Encoded]
    decode: Callable[[Encoded], NDArray[np.float64]]

    @property
    def width(self) -> int:
        """Bytes a row."""
        return self.data + self.scales


def rotate(rows: Floats, cos_sin: Floats) -> Floats:
    """Returns rows with their last 64 values rotated in pairs of neighbours, rounded to bfloat16: [rows, dims].

    Args:
        rows: values of bfloat16 [rows, dims].
        cos_sin: [rows, 64]: the cosines of 32 pairs, then their sines.
    """
    result = rows.copy()
    even, odd = rows[:, -ROPE_DIMS::2], rows[:, -ROPE_DIMS + 1 :: 2]
    cos, sin = np.split(cos_sin, 2, axis=1)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        result[:, -ROPE_DIMS::2] = even * cos - odd * sin
        result[:, -ROPE_DIMS + 1 :: 2] = odd * cos + even * sin
    return formats.round_bf16(result)


def normalize(rows: Floats, weight: Floats, eps: float) -> Floats:
    """Returns rows over the root of their mean square, times a weight, rounded to bfloat16: [rows, dims].

    Squares are added in halves: first those of 8 neighbours, then these sums.
    """
    with np.errstate(all="ignore"):
        squares = (rows * rows).reshape(len(rows), rows.shape[1] // _THREAD, _THREAD)
        while squares.shape[2] > 1:
            squares = squares[:, :, : squares.shape[2] // 2] + squares[:, :, squares.shape[2] // 2 :]
        sums = squares[:, :, 0]
        while sums.shape[1] > 1:
            sums = sums[:, : sums.shape[1] // 2] + sums[:, sums.shape[1] // 2 :]
        mean = sums / np.float32(rows.shape[1]) + np.float32(eps)
        inverse = (1 / np.sqrt(mean.astype(np.longdouble))).astype(np.float32)
        return formats.round_bf16(rows * inverse * weight)


def _grouped(rows: Floats, group: int) -> tuple[Floats, Floats]:
    """Rows in groups, and the largest magnitude of each; NaN where a group has one."""
    grouped = rows.reshape(len(rows), rows.shape[1] // group, group)
    return grouped, np.abs(grouped).max(axis=-1)


def _ceil_log2(values: NDArray[np.float64] | Floats) -> NDArray[np.float64]:
    fraction, exponent = np.frexp(values)
    result: NDArray[np.float64] = np.where(fraction == 0.5, exponent - 1, exponent).astype(np.float64)
    return result


def _encode_mxfp8(rows: Floats) -> Encoded:
    """E4M3, and a UE8M0 byte for 32: 2^ceil(log2(max(max(amax, 1e-4) / 448, 1e-4))), which is 2^-13 or more.

    A group with a NaN has the scale 255 and NaN in every code; one with an infinity but no NaN has the scale 255, NaN
    for the infinities, and zeros of the sign of the others.
    """
    grouped, largest = _grouped(rows, 32)
    finite = np.isfinite(largest)
    least = np.float32(1e-4)
    ratio = np.maximum(np.maximum(np.where(finite, largest, least), least) / np.float32(448), least)
    exponent = _ceil_log2(ratio)
    inverse = np.where(finite, np.exp2(-exponent), np.where(np.isnan(largest), np.nan, 0.0))
    with np.errstate(invalid="ignore"):
        codes = formats.encode_e4m3(grouped.astype(np.float64) * inverse[..., None])
    return Encoded(codes.reshape(rows.shape), np.where(finite, exponent + 127, _UE8M0_NAN).astype(np.uint8))


def _encode_fp4(rows: Floats) -> Encoded:
    """E2M1, and an E4M3 byte for 16: amax / 6, no less than 2^-9 and no more than 448.

    A group with a value that is not finite has NaN for its scale, and zeros.
    """
    grouped, largest = _grouped(rows, 16)
    finite = np.isfinite(largest)
    wanted = np.clip(np.where(finite, largest, 0) / np.float32(6), np.float32(2.0**-9), np.float32(448))
    scales = formats.encode_e4m3(wanted.astype(np.float64))
    divisors = formats.decode_e4m3(scales).astype(np.float32)
    values = np.where(finite[..., None], grouped, np.float32(0)) / divisors[..., None]
    codes = formats.encode_e2m1(values.astype(np.float64))
    return Encoded(codes.reshape(len(rows), rows.shape[1] // 2), np.where(finite, scales, _E4M3_NAN).astype(np.uint8))


def _encode_mxfp4(rows: Floats) -> Encoded:
    """E2M1, and a UE8M0 byte for 32: 2^ceil(log2(amax / 6)), which is 2^-126 or more.

    A group with a value that is not finite has the scale 255 and zeros.
    """
    grouped, largest = _grouped(rows, 32)
    finite = np.isfinite(largest)
    exponent = _ceil_log2(np.maximum(np.where(finite, largest, 0).astype(np.float64), 6 * 2.0**-126) / 6)
    values = np.where(finite[..., None], grouped, np.float32(0)).astype(np.float64) * np.exp2(-exponent)[..., None]
    codes = formats.encode_e2m1(values)
    return Encoded(
        codes.reshape(len(rows), rows.shape[1] // 2), np.where(finite, exponent + 127, _UE8M0_NAN).astype(np.uint8)
    )


def _decode_mxfp8(encoded: Encoded) -> NDArray[np.float64]:
    return formats.decode_e4m3(encoded.data) * formats.decode_ue8m0(encoded.scales).repeat(32, axis=-1)


def _decode_fp4(encoded: Encoded) -> NDArray[np.float64]:
    return formats.decode_e2m1(encoded.data) * formats.decode_e4m3(encoded.scales).repeat(16, axis=-1)


def _decode_mxfp4(encoded: Encoded) -> NDArray[np.float64]:
    return formats.decode_e2m1(encoded.data) * formats.decode_ue8m0(encoded.scales).repeat(32, axis=-1)


MXFP8 = Record(512, 512, 16, _encode_mxfp8, _decode_mxfp8)
FP4 = Record(512, 256, 32, _encode_fp4, _decode_fp4)
KEY = Record(128, 64, 4, _encode_mxfp4, _decode_mxfp4)
RECORDS = {record.width: record for record in (MXFP8, FP4, KEY)}


def written(positions: Longs, slots: Longs, places: int, positions_known: int, compress_ratio: int = 1) -> Mask:
    """Returns which rows are written: [rows].

    Those at the end of a group of `compress_ratio` positions whose slot is one of the `places` of the cache, and whose
    position has a row in the table of cosines.
    """
    inside = (slots >= 0) & (slots < places) & (positions >= 0) & (positions < positions_known)
    result: Mask = inside & ((positions + 1) % compress_ratio == 0)
    return result


def first_of_group(positions: Longs, compress_ratio: int) -> Longs:
    """Returns the position by which a row is rotated: the first of its group."""
    return positions // compress_ratio * compress_ratio


def store(memory: Bytes, page: int, slots: Longs, encoded: Encoded) -> None:
    """Writes rows to their slots, no slot twice. A page has the data of all its rows, then the scales of all of them.

    Args:
        memory: [pages, bytes from one page to the next].
        page: rows a page.
        slots: place of each row: page number times `page`, plus place in the page.
        encoded: the rows.
    """
    data, scales = encoded.data.shape[1], encoded.scales.shape[1]
    pages, at = np.divmod(slots, page)
    memory[pages[:, None], (at * data)[:, None] + np.arange(data)] = encoded.data
    memory[pages[:, None], (page * data + at * scales)[:, None] + np.arange(scales)] = encoded.scales


def fetch(memory: Bytes, page: int, slots: Longs, record: Record) -> Encoded:
    """Returns the bytes of rows from their slots; what `store` wrote."""
    pages, at = np.divmod(slots, page)
    data = memory[pages[:, None], (at * record.data)[:, None] + np.arange(record.data)]
    footer = page * record.data + at * record.scales
    return Encoded(data, memory[pages[:, None], footer[:, None] + np.arange(record.scales)])


def gather(memory: Bytes, page: int, slots: Longs, record: Record) -> Floats:
    """Returns rows as values of bfloat16: [slots, dims]; zeros for slots that the cache does not have."""
    inside = (slots >= 0) & (slots < len(memory) * page)
    values = record.decode(fetch(memory, page, np.where(inside, slots, 0), record))
    with np.errstate(over="ignore"):
        rounded = formats.round_bf16(values.astype(np.float32))
    return np.where(inside[:, None], rounded, np.float32(0))
