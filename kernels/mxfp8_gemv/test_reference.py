import ml_dtypes
import numpy as np

from kernels.mxfp8_gemv import reference


def test_values_by_another_library() -> None:
    generator = np.random.default_rng(1)
    codes = generator.integers(0, 256, (5, 96), dtype=np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    scales = generator.integers(0, 255, (5, 3), dtype=np.uint8)
    expected = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(5, 3, 32)
    expected = expected * scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)[..., None]
    assert np.array_equal(reference.values(codes, scales), expected.reshape(5, 96))


def test_groups_are_products_of_their_own() -> None:
    generator = np.random.default_rng(2)
    x, weight = generator.integers(-4, 5, (3, 2, 64)), generator.integers(-4, 5, (2, 16, 64))
    result = reference.mxfp8_grouped_gemv(x.astype(float), weight.astype(float))
    for m, g, n in [(0, 0, 0), (2, 1, 15), (1, 0, 7)]:
        assert result[m, g, n] == sum(int(a) * int(b) for a, b in zip(x[m, g], weight[g, n], strict=True))
