import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.common import formats, planes
from tools.experts.quantize import codebooks, facts, report

HISTOGRAMS = st.lists(st.integers(0, 10**6), min_size=16, max_size=16).filter(any)


def counts(histogram: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> facts.Counts:
    return facts.Counts.of([*(int(one) for one in histogram), 0, 0, 0, 0, 0, 0])


def test_sets() -> None:
    assert len(codebooks.SYMMETRIC) == 21 and len(set(codebooks.SYMMETRIC)) == 21
    assert len(codebooks.SUBSETS) == 1365 and codebooks.CANONICAL in codebooks.SYMMETRIC
    assert set(codebooks.SYMMETRIC) < set(codebooks.SUBSETS)


def test_canonical_levels_are_those_of_the_planes() -> None:
    assert np.array_equal(codebooks.nearest(codebooks.CANONICAL), planes.CODE_LEVELS[planes.NIBBLE_TO_CODE])


@pytest.mark.parametrize("levels", codebooks.SYMMETRIC)
def test_symmetric_sets_are_odd(levels: tuple[float, ...]) -> None:
    chosen = codebooks.nearest(levels)
    assert np.array_equal(chosen[8:], -chosen[:8])
    for value, level in zip(formats.E2M1_VALUES, chosen, strict=True):
        assert abs(level - value) == min(abs(one - value) for one in levels)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTOGRAMS)
def test_search_is_least_squares(numbers: list[int]) -> None:
    histogram = np.array(numbers, dtype=np.int64)
    found = codebooks.search(histogram)
    values = np.repeat(formats.E2M1_VALUES, 1)
    power = float((values**2) @ histogram)

    def error(levels: tuple[float, ...]) -> float:
        return float(((codebooks.nearest(levels) - values) ** 2) @ histogram)

    for fit in (found.canonical, found.symmetric, found.free):
        assert fit.bias == pytest.approx(float((codebooks.nearest(fit.levels) - values) @ histogram) / histogram.sum())
        assert fit.rms == pytest.approx(np.sqrt(error(fit.levels) / power) if power else 0)
    assert error(found.symmetric.levels) == min(error(levels) for levels in codebooks.SYMMETRIC)
    assert error(found.free.levels) <= error(found.symmetric.levels) <= error(found.canonical.levels)


def test_free_search_by_trying_all() -> None:
    histogram = np.random.default_rng(0).integers(0, 1000, 16)
    found = codebooks.search(histogram)
    values = formats.E2M1_VALUES

    def error(levels: tuple[float, ...]) -> float:
        return sum(float(n * min((v - one) ** 2 for one in levels)) for n, v in zip(histogram, values, strict=True))

    best = min(itertools.combinations(sorted({float(value) for value in values}), 4), key=error)
    assert found.free.levels == best


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTOGRAMS)
def test_mirrored_tensor_has_the_opposite_bias(numbers: list[int]) -> None:
    histogram = np.array(numbers, dtype=np.int64)
    one, other = codebooks.search(histogram), codebooks.search(np.roll(histogram, 8))
    assert other.canonical.bias == -one.canonical.bias and other.canonical.rms == one.canonical.rms


def skewed(seed: int, degrees: int = 3) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    """Nibbles of 2^17 weights of Student's distribution."""
    values = np.random.default_rng(seed).standard_t(degrees, 1 << 17).reshape(-1, 32)
    exponents = np.round(np.log2(np.abs(values).max(axis=1, keepdims=True) / 6))
    codes = planes.split_nibbles(formats.encode_e2m1(values / np.exp2(exponents)))
    return np.bincount(codes.reshape(-1), minlength=16)


def test_skewed_tensors_pass_and_the_free_levels_lean() -> None:
    found = report.summarize({(3, e): [counts(skewed(3 * e + at)) for at in range(3)] for e in range(4)})
    assert found.passes and found.canonical == 1 and found.winners == {"-4 -1 1 4": 12}
    assert found.bias < 0.005 < found.free_bias / 5 and 1 < found.rms / found.free_rms < 1.05


def failing(histogram: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]") -> list[str]:
    found = report.summarize({(0, 0): [counts(histogram)] * 3})
    names = [one.name for one in found.gate() if not one.holds]
    assert found.passes == (not names)
    return names


def test_conditions_that_do_not_hold() -> None:
    bias, share, canonical, ratio = [one.name for one in report.summarize({(0, 0): [counts(skewed(0))] * 3}).gate()]
    assert failing(skewed(0)) == []
    one_signed = skewed(0).copy()
    one_signed[0] += one_signed[8]
    one_signed[8] = 0
    assert failing(one_signed) == [bias, share]
    wide = np.array([1, 1, 1, 30, 1, 1, 1, 30] * 2)
    assert canonical in failing(wide) and ratio in failing(wide)


def test_report_is_the_same_whatever_the_order() -> None:
    all_counts = {
        (layer, e): [counts(skewed(layer * 9 + e * 3 + at)) for at in range(3)] for layer in (2, 1) for e in (1, 0)
    }
    assert report.summarize(all_counts) == report.summarize(dict(reversed(all_counts.items())))
    assert [one.layer for one in report.summarize(all_counts).layers] == [1, 2]
    found = report.summarize(all_counts)
    rows = list(report.tensors(all_counts))
    kept = json.loads(report.file(found, all_counts))
    assert kept.pop("tensors_one_by_one") == json.loads(json.dumps(rows)) and len(rows) == 12
    assert kept == json.loads(json.dumps(found.document()))
    places = [(row["layer"], row["expert"], row["matrix"]) for row in rows[:4]]
    assert places == [(1, 0, "w1"), (1, 0, "w3"), (1, 0, "w2"), (1, 1, "w1")]


def test_nothing_to_report_on() -> None:
    with pytest.raises(ValueError, match="no counts"):
        report.summarize({})
    with pytest.raises(ValueError, match="not all zero"):
        codebooks.search(np.zeros(16, dtype=np.int64))
