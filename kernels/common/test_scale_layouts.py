import numpy as np
import pytest

from kernels.common import scale_layouts


def by_definition(scales: np.ndarray) -> dict[int, int]:
    rows, columns = scales.shape
    tiles_a_band = -(-columns // 4)
    places = {}
    for r in range(rows):
        for c in range(columns):
            tile = r // 128 * tiles_a_band + c // 4
            places[tile * 512 + r % 32 * 16 + r // 32 % 4 * 4 + c % 4] = int(scales[r, c])
    return places


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (16, 18), (128, 4), (200, 160), (256, 5)])
def test_every_scale_is_where_the_definition_says(rows: int, columns: int) -> None:
    scales = np.random.default_rng(rows).integers(0, 255, (rows, columns), dtype=np.uint8)
    flat = scale_layouts.swizzle(scales, filler=255)
    places = by_definition(scales)
    assert {at: int(flat[at]) for at in places} == places
    assert all(flat[at] == 255 for at in range(flat.size) if at not in places)
    assert np.array_equal(scale_layouts.unswizzle(flat, rows, columns), scales)


def test_another_size() -> None:
    with pytest.raises(ValueError, match="511 scales; expected 512 for 1 rows of 1"):
        scale_layouts.unswizzle(np.zeros(511, dtype=np.uint8), 1, 1)


@pytest.mark.parametrize(("groups", "rows", "columns"), [(1, 1, 4), (2, 6, 128), (3, 8, 40), (1, 64, 4)])
def test_every_packed_scale_is_where_the_definition_says(groups: int, rows: int, columns: int) -> None:
    scales = np.random.default_rng(rows).integers(0, 255, (groups, rows, columns), dtype=np.uint8)
    words = scale_layouts.pack(scales, filler=255)
    assert words.shape == (groups, columns // 4, -(-rows // 4) * 4)
    for (g, r, c), scale in np.ndenumerate(scales):
        assert words[g, c // 4, r] >> (8 * (c % 4)) & 255 == scale
    assert (words[:, :, rows:] == -1).all()
