import ml_dtypes
import numpy as np
import pytest

from kernels.paged_mqa_logits import reference


def test_mxfp4_by_another_library() -> None:
    generator = np.random.default_rng(1)
    nibbles = generator.integers(0, 16, (5, 128), dtype=np.uint8)
    scales = generator.integers(0, 255, (5, 4), dtype=np.uint8)
    expected = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float64).reshape(5, 4, 32)
    expected = expected * scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)[..., None]
    packed = (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    assert np.array_equal(reference.mxfp4_values(packed, scales), expected.reshape(5, 128))


def test_fp8_keys_by_another_library() -> None:
    generator = np.random.default_rng(2)
    rows = generator.integers(0, 127, (6, 128), dtype=np.uint8)
    scales = generator.standard_normal(6).astype(np.float32)
    keys = reference.decode_keys(rows, scales.view(np.uint8).reshape(6, 4))
    assert np.array_equal(keys.values, rows.view(ml_dtypes.float8_e4m3fn).astype(np.float64))
    assert np.array_equal(keys.scales, scales)


@pytest.mark.parametrize("width", [128, 64])
@pytest.mark.parametrize("page", [32, 64, 128])
def test_scales_of_a_page_come_after_all_of_its_values(page: int, width: int) -> None:
    generator = np.random.default_rng(3)
    rows = generator.integers(0, 256, (page + 3, width), dtype=np.uint8)
    scales = generator.integers(0, 256, (page + 3, 4), dtype=np.uint8)
    pages = reference.write_pages(rows, scales, page, filler=0xEE)
    assert pages.shape == (2, page * (width + 4))
    key = page - 2
    assert pages[0, key * width + 5] == rows[key, 5]
    assert pages[0, page * width + key * 4 + 3] == scales[key, 3]
    assert pages[1, page * width + 2 * 4] == scales[page + 2, 0]
    assert pages[1, 3 * width] == pages[1, page * width + 3 * 4] == 0xEE
    for at in range(2):
        found, theirs = reference.read_page(pages[at], page)
        assert np.array_equal(found[:3], rows[at * page :][:3])
        assert np.array_equal(theirs[:3], scales[at * page :][:3])


def test_logits_one_by_one() -> None:
    generator = np.random.default_rng(4)
    q, weights = generator.integers(-4, 5, (2, 32, 128)).astype(float), generator.integers(-3, 4, (2, 32)).astype(float)
    keys = reference.Keys(generator.integers(-4, 5, (3, 128)).astype(float), np.array([1.0, -2.0, 0.5]))
    result = reference.logits(q, weights, keys)
    for row in range(2):
        for key in range(3):
            total = 0.0
            for head in range(32):
                product = sum(int(a) * int(b) for a, b in zip(q[row, head], keys.values[key], strict=True))
                total += weights[row, head] * max(product, 0)
            assert result[row, key] == total * keys.scales[key]


def test_bound_holds_for_sums_in_fp32_and_not_for_sums_in_half_of_it() -> None:
    generator = np.random.default_rng(5)
    q, weights = generator.standard_normal((1, 32, 128)), generator.standard_normal((1, 32))
    q, weights = q.astype(np.float32).astype(float), weights.astype(np.float32).astype(float)
    keys = reference.Keys(generator.standard_normal((50, 128)).astype(np.float32).astype(float), np.ones(50))
    exact, bound = reference.logits(q, weights, keys), reference.bound(q, weights, keys)
    for kind, fits in ((np.float32, True), (np.float16, False)):
        products = np.maximum(q[0].astype(kind) @ keys.values.astype(kind).T, 0)
        total = weights[0].astype(kind) @ products
        assert bool((np.abs(total.astype(float) - exact[0]) <= bound[0]).all()) is fits


def test_schedule_shares_out_every_unit_evenly() -> None:
    contexts = np.array([[0, 0], [33, 34], [1, 0], [-5, 0], [320, 319], [0, 0]], dtype=np.int32)
    units = [0, 2, 1, 0, 10, 0]
    for slots in (1, 2, 5, 13, 40):
        schedule = reference.schedule(contexts, slots)
        assert schedule[0].tolist() == [0, 0]
        assert schedule[-1].tolist() == [6, 0]
        places = [sum(units[:request]) + unit for request, unit in schedule.tolist()]
        shares = np.diff(places)
        assert sum(shares) == 13
        assert shares.min() >= 13 // slots
        assert shares.max() <= -(-13 // slots)
