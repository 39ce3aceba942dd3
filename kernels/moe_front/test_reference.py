import ml_dtypes
import numpy as np
import pytest

from kernels.common import formats
from kernels.moe_front import reference


def logits(tokens: int, experts: int = 384, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, (tokens, experts)).astype(np.float32)


def bf16(tokens: int, k: int, seed: int = 2) -> np.ndarray:
    generator = np.random.default_rng(seed)
    magnitudes = np.exp2(generator.integers(-45, 45, (tokens, k // 32))).repeat(32, axis=1)
    return formats.round_bf16((generator.standard_normal((tokens, k)) * magnitudes).astype(np.float32))


def test_scores_are_those_of_float64() -> None:
    points = np.concatenate([np.linspace(-86, 60, 200001), logits(64).ravel(), [0.0, -0.0, 20.0, 1e-30, 3e38]])
    points = points.astype(np.float32)
    exact = np.sqrt(np.logaddexp(points.astype(np.longdouble), 0))
    error = np.abs(reference.scores(points) - exact) / exact
    assert error.max() <= reference.SCORE_ERROR
    assert error.max() > reference.SCORE_ERROR / 3, "the bound is wider than it need be"


def test_scores_of_what_is_no_number() -> None:
    points = np.array([np.inf, -np.inf, np.nan, -86.5, -3e38], dtype=np.float32)
    assert np.array_equal(reference.scores(points), np.array([np.inf, 0, np.nan, 0, 0]), equal_nan=True)


def test_scores_do_not_fall() -> None:
    points = np.sort(np.concatenate([logits(200).ravel(), np.linspace(-86, 30, 100001).astype(np.float32)]))
    scores = reference.scores(points).astype(np.float64)
    assert (np.diff(scores) >= -2 * reference.SCORE_ERROR * scores[1:]).all()


def test_multiply_add_rounds_once() -> None:
    generator = np.random.default_rng(3)
    a, b, c = (generator.standard_normal(20000).astype(np.float32) for _ in range(3))
    c[:10000] = -(a[:10000] * b[:10000])
    c[10000:15000] *= np.float32(2.0**-30)
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    ours = reference._fma(a, b, c)
    error = np.abs(ours.astype(np.longdouble) - exact)
    for neighbour in (np.nextafter(ours, np.float32(np.inf)), np.nextafter(ours, np.float32(-np.inf))):
        assert (error <= np.abs(neighbour.astype(np.longdouble) - exact)).all()
    near_one = np.array([1 + 2**-12], dtype=np.float32)
    above_halfway = reference._fma(near_one, near_one, 2.0**-60)
    assert above_halfway[0] == np.float32(1 + 2**-11 + 2**-23)


def test_choice_by_hand() -> None:
    bias = np.random.default_rng(4).normal(0, 0.3, 384).astype(np.float32)
    ids, weights = reference.route(logits(16), bias, 2.5)
    for token, row in enumerate(logits(16)):
        score = np.sqrt(np.log1p(np.exp(row.astype(np.float64))))
        best = sorted(range(384), key=lambda expert: -(score[expert] + bias[expert]))[:6]
        assert ids[token].tolist() == best
        assert np.allclose(weights[token], 2.5 * score[best] / score[best].sum(), rtol=1e-6)


def test_of_equals_the_lower_expert() -> None:
    row, bias = np.zeros((1, 384), np.float32), np.zeros(384, np.float32)
    assert reference.route(row, bias)[0].tolist() == [[0, 1, 2, 3, 4, 5]]
    bias[[300, 7, 90]] = 1
    assert reference.route(row, bias)[0].tolist() == [[7, 90, 300, 0, 1, 2]]


def test_logits_that_are_no_numbers() -> None:
    row = np.zeros((3, 32), np.float32)
    row[0, 3], row[0, 5] = np.nan, -np.inf
    row[1, 9] = np.inf
    row[2] = np.nan
    ids, weights = reference.route(row, np.zeros(32, np.float32))
    assert ids.tolist() == [[0, 1, 2, 4, 6, 7], [9, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]
    assert np.allclose(weights[0], 1 / 6)
    assert np.isnan(weights[1, 0]) and (weights[1, 1:] == 0).all()
    assert np.isnan(weights[2]).all()


def test_images() -> None:
    ids = np.array([99, 100, 104, 105, -1])
    assert reference.image_tokens(ids, 100).tolist() == [False, True, True, False, False]
    assert not reference.image_tokens(np.arange(8), 0).any()


@pytest.mark.parametrize("group", [32, 128])
def test_codes_by_another_library(group: int) -> None:
    x = bf16(7, 1024)
    codes, scales = reference.quantize(x, group)
    grouped = x.reshape(7, -1, group)
    largest = np.maximum(np.abs(grouped).max(axis=-1), np.float32(1e-10)) / np.float32(448)
    power = np.exp2(np.ceil(np.log2(np.maximum(largest, np.float32(1e-10)).astype(np.float64)))).astype(np.float32)
    assert np.array_equal(formats.decode_ue8m0(scales), power)
    expected = (grouped / power[..., None]).astype(ml_dtypes.float8_e4m3fn).view(np.uint8).reshape(7, 1024)
    assert np.array_equal(codes, expected)
    assert (np.abs(formats.decode_e4m3(codes)) <= 448).all() and len(np.unique(scales)) > 20


def test_where_the_scale_steps() -> None:
    x = np.zeros((1, 512), np.float32)
    x[0, [0, 32, 64, 96, 128]] = [448, 450, -1.75, 2.0**-133, 3.3895314e38]
    codes, scales = reference.quantize(formats.round_bf16(x), 32)
    assert scales[0, :6].tolist() == [127, 128, 119, 94, 247, 94]
    assert codes[0, [0, 32, 64, 96, 128, 160]].tolist() == [0x7E, 0x76, 0xFE, 0, 0x78, 0]


def test_what_is_not_finite_makes_its_group_nan() -> None:
    x = np.ones((1, 512), np.float32)
    x[0, 3], x[0, 40], x[0, 41] = np.nan, np.inf, -1
    codes, scales = reference.quantize(x, 32)
    assert scales[0, :3].tolist() == [255, 255, 119]
    assert codes[0, [2, 3, 40, 41, 42]].tolist() == [0, 0x7F, 0x7F, 0x80, 0]


@pytest.mark.parametrize("alignment", [64, 128])
@pytest.mark.parametrize(("tokens", "experts"), [(1, 384), (16, 384), (64, 384), (64, 256), (64, 32)])
def test_places(tokens: int, experts: int, alignment: int) -> None:
    ids, _ = reference.route(logits(tokens, experts), np.zeros(experts, np.float32))
    ids[tokens // 2 :: 5] = -1
    m_indices, inv_perm = reference.place(ids, experts, alignment)
    live = ids >= 0
    assert (inv_perm[~live] == -1).all()
    assert np.array_equal(m_indices[inv_perm[live]], ids[live])
    assert len(np.unique(inv_perm[live])) == live.sum() == (m_indices >= 0).sum()
    firsts = m_indices.reshape(-1, alignment)
    assert ((firsts == firsts[:, :1]) | (firsts == -1)).all(), "two experts in a tile"
    assert (np.diff(firsts[firsts[:, 0] >= 0, 0]) > 0).all()
    for expert in np.unique(ids[live]):
        tokens_of_it, slots = np.nonzero(ids == expert)
        assert (np.diff(inv_perm[tokens_of_it, slots]) == 1).all()


def test_words_have_the_first_scale_lowest() -> None:
    assert reference.words(np.array([[1, 2, 3, 4], [255, 0, 0, 0]], dtype=np.uint8)).tolist() == [[0x04030201], [255]]
