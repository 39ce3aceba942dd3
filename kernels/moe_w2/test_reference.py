"""The oracle against definitions written out, and against another library's number formats."""

import ml_dtypes
import numpy as np
import pytest

from kernels.moe_w2 import reference

N, K = 32, 128


def plane_index(n: int, k: int) -> int:
    """Which weight of a plane (n, k) is, counted from its first bits: [nb, kb, g, t, tile, k32, half, k4]."""
    nb, tile, g = n // 16, n // 8 % 2, n % 8
    kb, k32, half, t, k4 = k // 64, k // 32 % 2, k // 16 % 2, k // 4 % 4, k % 4
    index = 0
    for value, size in ((nb, N // 16), (kb, K // 64), (g, 8), (t, 4), (tile, 2), (k32, 2), (half, 2), (k4, 4)):
        index = index * size + value
    return index


def scale_index(n: int, k: int) -> int:
    """Which byte of a scale plane is that of (n, k)."""
    return (n // 16 * (K // 32) + k // 32) * 16 + n % 16


@pytest.mark.parametrize("is_delta", [False, True])
def test_weights_by_their_places(is_delta: bool) -> None:
    generator = np.random.default_rng(1)
    bits = 4 if is_delta else 2
    plane = generator.integers(0, 256, N * K * bits // 8, dtype=np.uint8)
    scales = generator.integers(1, 255, N * K // 32, dtype=np.uint8)
    levels = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn) if is_delta else np.array([-4, -1, 1, 4])
    powers = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    values = (reference.delta_values if is_delta else reference.base_values)(plane, scales, N, K)
    each = 8 // bits
    for n in range(N):
        for k in range(K):
            at = plane_index(n, k)
            code = plane[at // each] >> (at % each * bits) & (2**bits - 1)
            assert values[n, k] == float(levels[code]) * powers[scale_index(n, k)], f"row {n}, column {k}"


def test_x_by_another_library() -> None:
    generator = np.random.default_rng(2)
    codes = generator.integers(0, 256, (2, 3, 64), dtype=np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    scales = generator.integers(0, 255, (2, 3, 2), dtype=np.uint8)
    powers = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * np.repeat(powers, 32, axis=-1)
    assert np.array_equal(reference.x_values(codes, scales), expected)


@pytest.mark.parametrize("by_pair", [False, True])
def test_products_pair_by_pair(by_pair: bool) -> None:
    generator = np.random.default_rng(3)
    ids = np.array([[4, -1, 2], [0, 4, 4]], dtype=np.int32)
    weights = {expert: generator.integers(-4, 5, (N, K)).astype(float) for expert in (0, 2)}
    x = generator.integers(-8, 9, (2, 3, K) if by_pair else (2, K)).astype(float)
    result = reference.moe_w2(x, ids, weights, N)
    assert result.shape == (2, 3, N)
    for m, j, expert in ((0, 2, 2), (1, 0, 0)):
        row = x[m, j] if by_pair else x[m]
        assert result[m, j, 5] == sum(int(a) * int(b) for a, b in zip(row, weights[expert][5], strict=True))
        result[m, j] = 0
    assert not result.any()


def test_padding_is_not_missing() -> None:
    ids = np.array([[4, -1, 2], [0, 4, 7]], dtype=np.int32)
    assert reference.missing(ids, {0: np.zeros(0), 2: np.zeros(0)}) == 3


def test_bound_is_more_for_bfloat16_and_nothing_where_nothing_is_computed() -> None:
    generator = np.random.default_rng(4)
    ids, weights = np.array([[0, 1]], dtype=np.int32), {0: generator.standard_normal((N, K))}
    x = generator.standard_normal((1, K))
    wide, narrow = reference.bound(x, ids, weights, N), reference.bound(x, ids, weights, N, bf16=False)
    assert np.all(wide[0, 0] > narrow[0, 0]) and np.all(narrow[0, 0] > 0)
    assert not wide[0, 1].any() and not narrow[0, 1].any()
    exact = reference.moe_w2(x, ids, weights, N)
    rounded = exact.astype(ml_dtypes.bfloat16).astype(np.float64)
    assert np.all(np.abs(rounded - exact) <= wide)
    typical = np.median(np.abs(x * weights[0]), axis=1)
    assert np.all(typical > 2 * wide[0, 0]), "an output that lacks a product would pass"
