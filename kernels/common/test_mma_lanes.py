"""The lane maps beside how CUTLASS writes the same instruction (cute/atom/mma_traits_sm80.hpp and _sm120.hpp)."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from kernels.common import mma_lanes


def places(index: int, shape: Sequence[int], stride: Sequence[int]) -> int:
    """A layout of CuTe: the first mode runs fastest."""
    total = 0
    for extent, step in zip(shape, stride, strict=True):
        total += index % extent * step
        index //= extent
    return total


def layout(threads: tuple[Sequence[int], Sequence[int]], values: tuple[Sequence[int], Sequence[int]]) -> np.ndarray:
    counts = [int(np.prod(shape)) for shape, _ in (threads, values)]
    return np.array([[places(t, *threads) + places(v, *values) for v in range(counts[1])] for t in range(counts[0])])


def test_a() -> None:
    row, k = mma_lanes.a_places()
    expected = layout(((4, 8), (64, 1)), ((4, 2, 2), (16, 8, 256)))
    assert np.array_equal((row + 16 * k).reshape(32, 16), expected)


def test_b() -> None:
    k, column = mma_lanes.b_places()
    expected = layout(((4, 8), (32, 1)), ((4, 2), (8, 128)))
    assert np.array_equal((column + 8 * k).reshape(32, 8), expected)


def test_a_of_4_bits() -> None:
    row, k = mma_lanes.a_places(mma_lanes.E2M1)
    expected = layout(((4, 8), (128, 1)), ((8, 2, 2), (16, 8, 512)))
    assert np.array_equal((row + 16 * k).reshape(32, 32), expected)


def test_b_of_4_bits() -> None:
    k, column = mma_lanes.b_places(mma_lanes.E2M1)
    expected = layout(((4, 8), (64, 1)), ((8, 2), (8, 256)))
    assert np.array_equal((column + 8 * k).reshape(32, 16), expected)


def test_d() -> None:
    row, column = mma_lanes.d_places()
    expected = layout(((4, 8), (32, 1)), ((2, 2), (16, 8)))
    assert np.array_equal(row + 16 * column, expected)


@pytest.mark.parametrize("ta", [0, 1])
def test_scales_of_a(ta: int) -> None:
    of_lane = layout(((2, 2, 8), (8, 0, 1)), ((1,), (0,)))[:, 0]
    assert np.array_equal(of_lane[mma_lanes.a_scale_lanes(ta)], np.arange(16))


@pytest.mark.parametrize("tb", [0, 1, 2, 3])
def test_scales_of_b(tb: int) -> None:
    of_lane = layout(((4, 8), (0, 1)), ((1,), (0,)))[:, 0]
    assert np.array_equal(of_lane[mma_lanes.b_scale_lanes(tb)], np.arange(8))


@pytest.mark.parametrize(
    ("bits", "dtype", "step"),
    [(8, ml_dtypes.float8_e4m3fn, 0), (8, ml_dtypes.float8_e4m3fn, 3), (4, ml_dtypes.float4_e2m1fn, 2)],
)
def test_product(bits: int, dtype: type, step: int) -> None:
    generator = np.random.default_rng(step)
    depth, most = 256 // bits, 2**bits // 2 - 1
    left = generator.integers(0, most, (16, depth), dtype=np.uint8)
    right = generator.integers(0, most, (depth, 8), dtype=np.uint8)
    scale_left, scale_right = (generator.integers(120, 134, (n, 4), dtype=np.uint8) for n in (16, 8))
    # What no lane is asked for must not count.
    a_words, b_words = np.full((2, 32, 4), 255, dtype=np.uint8)
    a_words[mma_lanes.a_scale_lanes()] = scale_left
    b_words[mma_lanes.b_scale_lanes(2)] = scale_right
    a, b = left[mma_lanes.a_places(bits)], right[mma_lanes.b_places(bits)]
    found = mma_lanes.mma_mx(a, b, a_words, b_words, step, tb=2, bits=bits)

    def values(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        whole = codes.view(dtype).astype(np.float64).reshape(len(codes), -1, 32)
        used = scales[:, step : step + depth // 32].astype(int)
        return np.asarray((whole * 2.0 ** (used - 127)[..., None]).reshape(codes.shape))

    expected = values(left, scale_left) @ values(np.ascontiguousarray(right.T), scale_right).T
    assert np.array_equal(found, expected[mma_lanes.d_places()])
