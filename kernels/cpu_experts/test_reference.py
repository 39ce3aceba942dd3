"""The contract against something that is not ours: fractions, math, and fp64."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels.cpu_experts import made_up, reference
from kernels.cpu_experts.layout import Record, pack_matrix, unpack_matrix

f32 = np.float32


def nearest_float32(value: Fraction) -> np.float32:
    """Rounded once, ties to even, denormals kept."""
    if value == 0:
        return f32(0)
    exponent = max(math.floor(math.log2(abs(value))) if abs(value) > Fraction(1, 2**1000) else -1000, -126)
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > -126 and abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    with np.errstate(over="ignore"):
        return f32(float(round(value / unit) * unit))


def test_fma_rounds_once() -> None:
    random = np.random.default_rng(1)
    count = 3000
    bits = random.integers(0, 2**32, (3, count), dtype=np.uint32)
    a, b, c = (part.view(np.float32) for part in bits)
    # Products that nearly cancel, and ties.
    with np.errstate(all="ignore"):
        cancelling = -(a.astype(np.float64) * b).astype(np.float32)
    c = np.where(np.arange(count) % 3 == 0, cancelling, c)
    b = np.where(np.arange(count) % 5 == 0, np.exp2(random.integers(-140, 120, count)).astype(np.float32), b)
    fine = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = a[fine], b[fine], c[fine]
    got = reference.fma(a, b, c)
    for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        want = nearest_float32(Fraction(x) * Fraction(y) + Fraction(z))
        assert r == want, (x, y, z)


def test_bfloat16_as_ml_dtypes_has_it() -> None:
    words = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    values = reference.from_bfloat16(words)
    same = (values == words.view(ml_dtypes.bfloat16).astype(np.float32)) | np.isnan(values)
    assert same.all()
    random = np.random.default_rng(2).integers(0, 2**32, 100000, dtype=np.uint32).view(np.float32)
    number = ~np.isnan(random)
    with np.errstate(all="ignore"):
        want = random.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(reference.to_bfloat16(random)[number], want[number])
    assert (reference.to_bfloat16(random)[~number] == 0x7FC0).all()


def test_codes_as_ml_dtypes_has_them() -> None:
    values = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    assert np.array_equal(reference.TWICE * 0.5, values)
    scales = np.arange(256, dtype=np.uint8)
    want = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert np.array_equal(reference.scale_values(scales), want, equal_nan=True)


@pytest.mark.parametrize(("bits", "steps"), [(16, 2**14), (8, 2**6)])
def test_quantized_within_half_a_unit(bits: int, steps: int) -> None:
    x = made_up.activations((4, 256), 3)
    quantized = reference.quantize(x, bits)
    values = reference.from_bfloat16(x).reshape(4, 8, 32).astype(np.float64)
    back = quantized.q.reshape(4, 8, 32) * 2.0 * quantized.unit[:, :, None]
    assert np.abs(back - values).max() <= 2.0 ** math.ceil(math.log2(np.abs(values).max())) / steps / 2
    assert np.abs(quantized.q).max() <= {16: 32639, 8: 127}[bits]
    assert (quantized.unit * 2 * steps <= np.abs(values).max(axis=2)).all()


def test_largest_of_a_block_does_not_overflow() -> None:
    for bits, top in ((16, 32639), (8, 127)):
        quantized = reference.quantize(np.full((1, 32), 0x3FFF, np.uint16), bits)
        assert (quantized.q == top).all()


def test_blocks_that_are_no_numbers() -> None:
    x = made_up.activations((1, 128), 4)
    for column, word in ((0, 0x7F80), (33, 0xFF80), (64, 0x7FC1)):
        x[0, column] = word
    quantized = reference.quantize(x)
    assert np.isnan(quantized.unit[0]).tolist() == [True, True, True, False]
    assert (quantized.q[0, :96] == 0).all()


def test_exponential_within_two_ulp() -> None:
    x = np.concatenate([np.linspace(-87, 87, 200001), np.linspace(-1, 1, 50001)]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(reference.exponential(x) / exact - 1).max() < 2**-22


def test_swiglu() -> None:
    random = np.random.default_rng(5)
    gate, up = (random.standard_normal(20000).astype(np.float32) * 12 for _ in range(2))
    for limit in (10.0, 3.5, math.inf):
        g, u = np.minimum(gate.astype(np.float64), limit), np.clip(up.astype(np.float64), -limit, limit)
        want = g / (1 + np.exp(-g)) * u
        got = reference.from_bfloat16(reference.swiglu(gate, up, limit))
        assert np.abs(got / want - 1).max() < 2**-8 + 2**-20
    inf, nan = np.inf, np.nan
    ends = reference.swiglu(np.array([inf, -inf, nan, 1, 1, 0], f32), np.array([1, 1, 1, -inf, nan, inf], f32), 10.0)
    values = reference.from_bfloat16(ends)
    assert values[0] == f32(10)
    assert abs(values[1]) < 2e-36
    assert np.isnan(values).tolist() == [False, False, True, False, True, False]
    assert values[3] == reference.from_bfloat16(reference.to_bfloat16(np.array([-10 / (1 + math.exp(-1))], f32)))[0]
    assert values[5] == 0


# As the README states it: of products of a matrix with normally distributed activations.
@pytest.mark.parametrize(("bits", "most"), [(16, 6e-6), (8, 1.2e-2)])
def test_error_against_fp64(bits: int, most: float) -> None:
    rows, inputs = 256, 2048
    flat = made_up.fill(made_up.aligned(rows * inputs * 17 // 32), 6)
    codes, scales = unpack_matrix(flat, rows, inputs)
    x = made_up.activations((4, inputs), 7)
    got = reference.times(codes, scales, reference.quantize(x, bits)).astype(np.float64)
    matrix = reference.twice_values(codes) * 0.5 * np.repeat(np.exp2(scales.astype(np.float64) - 127), 32, axis=1)
    exact = reference.from_bfloat16(x).astype(np.float64) @ matrix.T
    assert np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) < most
    assert np.array_equal(pack_matrix(codes, scales), flat)


@pytest.mark.parametrize(("bits", "most"), [(16, 4e-3), (8, 3e-2)])
def test_error_of_an_expert_against_fp64(bits: int, most: float) -> None:
    shape = Record(512, 384)
    flat = made_up.record(shape, 8)
    x = made_up.activations((4, shape.hidden), 9)
    exact = reference.exact_expert(shape, flat, x, 10.0)
    got = reference.expert(shape, flat, x, 10.0, bits).astype(np.float64)
    assert np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) < most
