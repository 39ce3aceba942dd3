"""The quantizer's two forms against each other and against the rules, written out."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.common import formats, planes
from tools.experts.checkpoint.schemes import Matrix
from tools.experts.native import codec
from tools.experts.quantize import expert, facts, numpy_form
from tools.experts.synthetic import tensors

SCHEMES = ("mxfp4", "nvfp4", "fp8_block")


def matrix(scheme: str, seed: int, rows: int = 32, columns: int = 128, wild: bool = False) -> Matrix:
    """Every byte that is allowed, at random; not `wild`: weights as the models have them."""
    generator = np.random.default_rng(seed)
    if not wild:
        arrays = {part: a for part, (_, a) in tensors.stored(scheme, tensors.weights(generator, rows, columns)).items()}
        second = float(arrays.get("scale_2", np.float32(1)))
        return Matrix(scheme, rows, columns, arrays["weight"].view(np.uint8), arrays["scale"], second, "t")  # type: ignore[arg-type]
    if scheme == "fp8_block":
        codes = generator.integers(0, 256, (rows, columns), dtype=np.uint8)
        codes[codes & 0x7F == 0x7F] = 0x80
        shape = (-(-rows // 128), -(-columns // 128))
        floats = np.exp2(generator.uniform(-149, 127, shape)).astype(np.float32)
        floats[generator.random(shape) < 0.2] = 0
        return Matrix(scheme, rows, columns, codes, floats, 1.0, "t")
    codes = generator.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
    if scheme == "mxfp4":
        scales = generator.integers(0, 255, (rows, columns // 32), dtype=np.uint8)
        return Matrix(scheme, rows, columns, codes, scales, 1.0, "t")
    scales = generator.integers(0, 127, (rows, columns // 16), dtype=np.uint8)
    return Matrix(scheme, rows, columns, codes, scales, float(np.float32(2.0 ** generator.uniform(-149, 127))), "t")


def both(one: Matrix, mode: str, kind: str | None) -> None:
    """Asserts that all loops give what the numpy form gives."""
    found = numpy_form.quantize(one, mode)
    base, delta = numpy_form.records([found], kind)
    for isa in codec.isas():
        own, own_delta = np.full_like(base, 0xAA), None if delta is None else np.full_like(delta, 0xAA)
        counts = expert.quantize([one], mode, own, own_delta, kind, isa)
        assert counts == [found.counts]
        assert np.array_equal(own, base), isa
        assert delta is None or (own_delta is not None and np.array_equal(own_delta, delta)), isa


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SCHEMES), st.sampled_from(facts.ZERO_MODES), st.sampled_from([None, *facts.DELTAS]),
    st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.floats(0, 1),
)  # fmt: skip
def test_machine_code_gives_what_numpy_gives(
    scheme: str, mode: str, kind: str | None, seed: int, nb: int, kb: int, wild: bool, zeros: float
) -> None:
    one = matrix(scheme, seed, 16 * nb, 64 * kb, wild)
    generator = np.random.default_rng(seed)
    zero = generator.random(one.codes.shape) < zeros
    one.codes[zero] &= generator.choice(np.array([0, 0x80, 0x88, 0x08], dtype=np.uint8), one.codes.shape)[zero]
    both(one, mode, kind)


def test_this_cpu_takes_its_best_loops() -> None:
    assert codec.isas()[0] == "portable"
    with pytest.raises(ValueError, match="no loops for sve here"):
        expert.quantize([matrix("mxfp4", 0)], "auto", np.empty(1152, dtype=np.uint8), isa="sve")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", facts.ZERO_MODES)
def test_planes_decode_to_codebook_and_delta_to_all_bits(scheme: str, mode: str) -> None:
    one = matrix(scheme, 5, 48, 192)
    found = numpy_form.quantize(one, mode)
    base, delta = numpy_form.records([found], "quintal")
    codes = planes.unpack_codes(base[: 48 * 48], 48, 192)
    scales = planes.unpack_scales(base[48 * 48 :], 48, 192)
    assert delta is not None
    nibbles = planes.unpack_quintal(delta, codes)
    assert np.array_equal(nibbles, found.nibbles)
    values, levels = planes.decode_nibbles(nibbles, scales), planes.decode(codes, scales)
    units = np.repeat(formats.decode_ue8m0(scales), 32, axis=1)
    assert np.array_equal(np.abs(levels), np.where(np.abs(values) <= 2 * units, 1, 4) * units)
    assert np.array_equal(np.signbit(levels), np.signbit(values))
    if scheme == "mxfp4":
        assert np.array_equal(scales, one.scales) and np.array_equal(values, numpy_form.dequantize(one))


def by_definition(values: list[Fraction]) -> tuple[int, list[int]]:
    """Scale byte and magnitude indices of a block, in exact arithmetic."""
    amax = max(abs(value) for value in values)
    exponent = -127
    if amax:
        # round(log2(amax / 6)): the exponent whose interval [2^(e - 1/2), 2^(e + 1/2)) has amax / 6, squared.
        squared = (amax / 6) ** 2
        exponent = math.floor(math.log2(amax) - math.log2(6)) - 2
        while squared >= Fraction(2) ** (2 * exponent + 1):
            exponent += 1
        exponent = max(-127, min(127, exponent))
    magnitudes = []
    for value in values:
        units = abs(value) / Fraction(2) ** exponent
        distances = [(abs(units - Fraction(magnitude)), at) for at, magnitude in enumerate(formats.E2M1_VALUES[:8])]
        magnitudes.append(min(distances)[1])
    return exponent + 127, magnitudes


@pytest.mark.parametrize("scheme", ["nvfp4", "fp8_block"])
@pytest.mark.parametrize("seed", range(12))
def test_requantization_is_exact(scheme: str, seed: int) -> None:
    one = matrix(scheme, seed, 16, 64, wild=seed % 2 == 0)
    found = numpy_form.quantize(one, "sign")
    if scheme == "nvfp4":
        of_weight = np.repeat(formats.decode_e4m3(one.scales.astype(np.uint8)), 16, axis=1)
        stated = formats.decode_e2m1(one.codes)
        exact = [
            [Fraction(v) * Fraction(s) * Fraction(one.scale_2) for v, s in zip(*pair, strict=True)]
            for pair in zip(stated, of_weight, strict=True)
        ]
    else:
        exact = [
            [Fraction(v) * Fraction(float(one.scales[0, 0])) for v in row] for row in formats.decode_e4m3(one.codes)
        ]
    for row, block in itertools.product(range(16), range(2)):
        scale, magnitudes = by_definition(exact[row][block * 32 : block * 32 + 32])
        assert found.scales[row, block] == scale
        assert (found.nibbles[row, block * 32 : block * 32 + 32] & 7).tolist() == magnitudes
    signs = one.codes >> 7 if scheme == "fp8_block" else planes.split_nibbles(one.codes) >> 3
    assert np.array_equal(found.nibbles >> 3, signs)


def fp8(rows: list[list[float]], scale: float = 1.0) -> Matrix:
    """A matrix 16 x 64 whose first rows begin with these E4M3 values."""
    values = np.zeros((16, 64))
    for at, row in enumerate(rows):
        values[at, : len(row)] = row
    codes = formats.encode_e4m3(values)
    assert np.array_equal(formats.decode_e4m3(codes), values)
    return Matrix("fp8_block", 16, 64, codes, np.full((1, 1), scale, dtype=np.float32), 1.0, "t")


@pytest.mark.parametrize(
    ("value", "magnitude"),
    [
        (0.25, 0),
        (0.28125, 1),
        (0.75, 1),
        (0.8125, 2),
        (1.25, 2),
        (1.75, 3),
        (2.5, 4),
        (2.75, 5),
        (3.5, 5),
        (5, 6),
        (6, 7),
    ],
)
def test_ties_go_to_the_lower_magnitude(value: float, magnitude: int) -> None:
    one = fp8([[6, value, -value]])
    found = numpy_form.quantize(one, "sign")
    assert found.scales[0, 0] == 127
    assert found.nibbles[0, :3].tolist() == [7, magnitude, magnitude | 8]
    both(one, "sign", "quintal")


def test_largest_weight_may_saturate() -> None:
    """8.0 is 6 times 2^0.415, whose nearest exponent is 0; 9 is 6 times 2^0.585."""
    for largest, scale, nibble, saturated in ((8.0, 127, 7, 1), (9.0, 128, 6, 0), (4.5, 127, 6, 0), (4.0, 126, 7, 1)):
        one = fp8([[largest]])
        found = numpy_form.quantize(one, "sign")
        assert (found.scales[0, 0], found.nibbles[0, 0], found.counts.saturated) == (scale, nibble, saturated)
        both(one, "sign", None)


def test_exponent_equals_a_rounded_logarithm() -> None:
    amax = np.exp2(np.random.default_rng(0).uniform(-140, 140, 20000))
    found = numpy_form.exponents_of(np.repeat(amax[:, None], 32, axis=1))[1][:, 0]
    assert np.array_equal(found, np.round(np.log2(amax / 6)))
    assert Fraction(numpy_form.HALFWAY) ** 2 < Fraction(18, 64) < Fraction(math.nextafter(numpy_form.HALFWAY, 1)) ** 2


@pytest.mark.parametrize("scale", [2.0**-149, 2.0**-126, 2.0**126, float(np.finfo(np.float32).max)])
def test_exponents_are_clamped(scale: float) -> None:
    one = fp8([[448, -448, 2.0**-9], [2.0**-9]], scale)
    found = numpy_form.quantize(one, "sign")
    exponents = found.scales[:2, 0].astype(int) - 127
    assert (np.abs(exponents) <= 127).all() and found.counts.clamped == (2 if scale < 1e-40 else 1)
    both(one, "sign", "fp4")


def test_blocks_of_zeros() -> None:
    for scheme in SCHEMES:
        one = matrix(scheme, 1)
        one.codes[:] = 0
        found = numpy_form.quantize(one, "sign")
        assert found.counts.zero_blocks == 128 and found.counts.positive_zeros == 32 * 128
        if scheme != "mxfp4":
            assert (found.scales == 0).all()
        assert (planes.to_codes(found.nibbles) == 2).all()
        for mode, kind in itertools.product(facts.ZERO_MODES, [None, *facts.DELTAS]):
            both(one, mode, kind)


def test_scales_of_zero() -> None:
    for scheme in ("nvfp4", "fp8_block"):
        one = matrix(scheme, 2)
        one.scales[0] = 0
        assert numpy_form.quantize(one, "sign").counts.zero_blocks >= 4
        for mode in facts.ZERO_MODES:
            both(one, mode, "quintal")
    whole = matrix("nvfp4", 3)
    for mode in facts.ZERO_MODES:
        both(Matrix("nvfp4", 32, 128, whole.codes, whole.scales, 0.0, "t"), mode, "fp4")


def test_zero_modes() -> None:
    """96 zeros of 100 are +0: the rarer sign has less than 5 %."""
    codes = np.full((16, 64), 2, dtype=np.uint8)
    codes[0, :] = 0
    codes[1, :32] = 0
    for minority, alternated in ((4, True), (5, False)):
        nibbles = codes.copy()
        nibbles[2, : 100 - 96] = 0
        nibbles[0, :minority] = 8
        one = Matrix("mxfp4", 16, 64, planes.join_nibbles(nibbles), np.full((16, 2), 127, dtype=np.uint8), 1.0, "t")
        found = numpy_form.quantize(one, "auto")
        assert (found.counts.negative_zeros, found.counts.alternated) == (minority, int(alternated))
        if alternated:
            assert found.nibbles[0].tolist() == [0, 8] * 32 and found.nibbles[2, :5].tolist() == [0, 8, 0, 8, 2]
        else:
            assert np.array_equal(found.nibbles, nibbles)
        assert np.array_equal(numpy_form.quantize(one, "sign").nibbles, nibbles)
        assert numpy_form.quantize(one, "alt").nibbles[0].tolist() == [0, 8] * 32
        for mode in facts.ZERO_MODES:
            both(one, mode, "quintal")


def test_weight_that_rounds_to_zero_keeps_its_sign_in_every_mode() -> None:
    one = fp8([[6, 0.25, 0.25, -0.25, -0.25], [0, 0]])
    for mode in facts.ZERO_MODES:
        found = numpy_form.quantize(one, mode)
        assert found.nibbles[0, 1:5].tolist() == [0, 0, 8, 8]
        both(one, mode, None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, -0.0])
def test_scale_that_is_none(bad: float) -> None:
    one = matrix("fp8_block", 1)
    one.scales[0, 0] = bad
    other = matrix("nvfp4", 1)
    other = Matrix("nvfp4", 32, 128, other.codes, other.scales, bad, "t")
    for wrong in (one, other):
        refused(wrong, "a scale is NaN, infinite or negative")


def test_byte_that_is_none() -> None:
    one, other, third = (matrix(scheme, 1) for scheme in SCHEMES)
    one.scales[31, 3] = 255
    refused(one, "a scale is NaN")
    for code in (127, 128, 255):
        other.scales[31, 7] = code
        refused(other, "a scale is NaN, infinite or negative")
    for code in (127, 255):
        third.codes[31, 127] = code
        refused(third, "a weight is NaN")


def refused(one: Matrix, why: str) -> None:
    with pytest.raises(ValueError, match=f"^t: {why}$"):
        numpy_form.quantize(one, "auto")
    for isa in codec.isas():
        with pytest.raises(ValueError, match=f"^t: {why}$"):
            expert.quantize([one], "auto", np.empty(32 * 36, dtype=np.uint8), isa=isa)


def test_slot_of_another_size() -> None:
    one = matrix("mxfp4", 1)
    for size in (1151, 1153):
        with pytest.raises(ValueError, match="expected"):
            expert.quantize([one], "auto", np.empty(size, dtype=np.uint8))
    with pytest.raises(ValueError, match="delta: 0 elements, expected 1280"):
        expert.quantize([one], "auto", np.empty(1152, dtype=np.uint8), None, "quintal")
    with pytest.raises(ValueError, match="no zero mode none"):
        expert.quantize([one], "none", np.empty(1152, dtype=np.uint8))


def test_what_is_written_is_the_callers_memory() -> None:
    one = matrix("mxfp4", 1)
    with pytest.raises(TypeError):
        expert.quantize([one], "auto", np.empty(2304, dtype=np.uint8)[::2])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 2**40), min_size=22, max_size=22))
def test_counts_keep(numbers: list[int]) -> None:
    assert facts.Counts.of(numbers).numbers() == numbers


def test_counts_that_are_none() -> None:
    for wrong in ([0] * 21, [-1] + [0] * 21):
        with pytest.raises(ValueError, match="expected 22 counts"):
            facts.Counts.of(wrong)
